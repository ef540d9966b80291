// A variability study as text for the terminal.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quantity.h"
#include "report/terminal.h"
#include "report/variability.h"

namespace redline::report {
namespace {

constexpr std::size_t kMostLines = 20;  // per kind; the tables have all

std::string deviations_text(const Deviations& deviations) {
  std::vector<std::string> parts;
  const auto add = [&](double value, const char* what) {
    if (!std::isnan(value)) parts.push_back(fmt::format("{:.2f}% {}", 100 * value, what));
  };
  add(deviations.iterations, "within runs");
  add(deviations.runs, "between runs of a device");
  add(deviations.devices, "between devices");
  return fmt::format("{}", fmt::join(parts, ", "));
}

// At most kMostLines of them.
void put_capped(std::string& text, const std::vector<std::string>& lines, const char* what) {
  for (std::size_t i = 0; i < std::min(lines.size(), kMostLines); ++i) text += lines[i];
  if (lines.size() > kMostLines)
    text += fmt::format("  {:<14}{} more: see the tables\n", what, lines.size() - kMostLines);
}

std::vector<std::string> outlier_lines(const char* name, const Level& level) {
  std::vector<std::string> lines;
  for (const Group& group : level.groups)
    if (group.outlier)
      lines.push_back(fmt::format("  {:<14}{} {:.2f}% {} than the median\n", name, printable(group.name),
                                  100 * std::abs(group.normalized - 1),
                                  group.normalized > 1 ? "slower" : "faster"));
  return lines;
}

std::vector<std::string> change_lines(const std::vector<DeviceRun>& runs) {
  std::vector<std::string> lines;
  for (const DeviceRun& run : runs) {
    if (std::isnan(run.change)) continue;
    lines.push_back(fmt::format("  {:<14}{} {:.1f}% {} after {:.0f}% of {}{}\n", "change",
                                printable(run.group), 100 * std::abs(run.change),
                                run.change > 0 ? "slower" : "faster", 100 * run.change_at, printable(run.run),
                                run.cause.empty() ? "" : ": " + printable(run.cause)));
  }
  return lines;
}

// How many devices were throttled, by reason.
std::vector<std::string> throttle_lines(const Level& devices) {
  struct Held {
    std::string reason;
    std::size_t devices = 0;
    double most = 0;
  };
  std::vector<Held> all;
  for (const Group& device : devices.groups) {
    for (const Throttle& entry : device.throttle) {
      auto known = std::ranges::find(all, entry.reason, &Held::reason);
      if (known == all.end()) known = all.insert(all.end(), Held{entry.reason, 0, 0});
      ++known->devices;
      known->most = std::max(known->most, entry.share);
    }
  }
  std::vector<std::string> lines;
  for (const Held& entry : all)
    lines.push_back(fmt::format("  {:<14}{} on {}, in up to {:.1f}% of the time\n", "throttling",
                                printable(words_of(entry.reason)), counted(entry.devices, "device"),
                                100 * entry.most));
  return lines;
}

}  // namespace

std::string terminal_text(const Variability& study) {
  const std::size_t devices = study.devices.groups.size();
  // A table without nodes has each device as its own.
  const bool with_nodes =
      std::ranges::any_of(study.runs, [](const DeviceRun& run) { return run.node != run.device; });
  std::string text = fmt::format(
      "{} on {}{}{}\n", counted(study.runs.size(), "run"), counted(devices, "device"),
      with_nodes ? " of " + counted(study.nodes.groups.size(), "node") : "",
      study.cabinets.groups.empty() ? "" : " in " + counted(study.cabinets.groups.size(), "cabinet"));
  const auto percent = [](const Whiskers& box) { return 100 * box.variability(); };
  if (study.runs.size() > 1) {
    text += fmt::format("  variability   {:.2f}% over runs", percent(study.box));
    if (devices > 1) text += fmt::format(", {:.2f}% over devices", percent(study.devices.box));
    text += " (whisker to whisker, of the median)\n";
  }
  if (const std::string deviations = deviations_text(study.deviations); !deviations.empty())
    text += fmt::format("  deviation     {} (standard, of the median)\n", deviations);
  put_capped(text, outlier_lines("cabinet", study.cabinets), "cabinets");
  put_capped(text, outlier_lines("node", study.nodes), "nodes");
  put_capped(text, outlier_lines("device", study.devices), "devices");
  put_capped(text, change_lines(study.runs), "changes");
  put_capped(text, throttle_lines(study.devices), "throttling");
  const auto stands_out = [](const Level& level) {
    return std::ranges::any_of(level.groups, &Group::outlier);
  };
  const bool steady =
      std::ranges::none_of(study.devices.groups, [](const Group& group) { return group.changes > 0; });
  if (study.devices.tested && steady && !stands_out(study.devices) && !stands_out(study.nodes) &&
      !stands_out(study.cabinets))
    text += "  stands out    nothing beyond chance\n";
  for (const Correlation& entry : study.correlations) {
    if (std::isnan(entry.pearson)) {
      text += fmt::format("  {:<18}{}\n", entry.with, entry.pairs < 3 ? "too few runs" : "does not vary");
      continue;
    }
    text += fmt::format("  {:<18}Pearson {}", entry.with, format_signed(entry.pearson, 2));
    if (entry.interval.coverage > 0)
      text += fmt::format(" (95%: {} to {})", format_signed(entry.interval.low, 2),
                          format_signed(entry.interval.high, 2));
    text += fmt::format(", Spearman {}, {}\n", format_signed(entry.spearman, 2), counted(entry.pairs, "run"));
  }
  for (const std::string& problem : study.problems)
    text += fmt::format("  warning       {}\n", printable(problem));
  return text;
}

}  // namespace redline::report
