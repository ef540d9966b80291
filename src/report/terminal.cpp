#include "report/terminal.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/text.h"
#include "report/summary.h"
#include "report/thin.h"

namespace redline::report {
namespace {

constexpr std::size_t kWidth = 60;
constexpr std::size_t kMostWarnings = 10;

class Text {
 public:
  template <typename... Args>
  void line(fmt::format_string<Args...> text, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), text, std::forward<Args>(args)...);
    text_ += '\n';
  }
  template <typename... Args>
  void row(const char* name, fmt::format_string<Args...> text, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), "  {:<12}", name);
    line(text, std::forward<Args>(args)...);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void put_numbers(const RunSummary& summary, Text& text) {
  if (summary.images_per_second) {
    std::string interval;
    if (const auto& range = summary.images_per_second_interval; range && range->coverage >= kConfidence)
      interval = fmt::format(" (95%: {:.1f} to {:.1f})", range->low, range->high);
    text.row("speed", "{:.1f} images/s at the median step{}", *summary.images_per_second, interval);
  }
  if (summary.step_seconds) {
    const Summary& step = *summary.step_seconds;
    text.row("step", "median {:.4g} ms, 90% {:.4g} ms, 99% {:.4g} ms, slowest {:.4g} ms", 1e3 * step.median,
             1e3 * step.p90, 1e3 * step.p99, 1e3 * step.max);
  }
  if (summary.data_wait)
    text.row("data", "{:.1f}% of the training time spent waiting for data", 100 * *summary.data_wait);
  if (summary.best) {
    text.row("accuracy", "top-1 {:.2f}%, top-5 {:.2f}% after step {} (the best of all evaluations)",
             100 * summary.best->top1, 100 * summary.best->top5, summary.best->step);
  }
  std::string device;
  if (summary.clock_mhz) device += fmt::format("{:.0f} MHz  ", *summary.clock_mhz);
  if (summary.power_w) device += fmt::format("{:.0f} W  ", *summary.power_w);
  if (summary.temperature_c) device += fmt::format("up to {:.0f} °C  ", *summary.temperature_c);
  if (summary.memory_bytes)
    device += format_bytes(static_cast<std::uint64_t>(*summary.memory_bytes)) + " of memory";
  if (!device.empty()) text.row("device", "{}", device);
}

void put_run(const Run& run, const RunSummary& summary, Text& text) {
  const metrics::RunInfo& info = run.info;
  text.line("{}: {} after step {} of {}, {}", printable(run.name), name_of(summary.state), summary.steps,
            summary.total_steps, format_duration(summary.seconds));
  if (run.end && !run.end->detail.empty()) text.row("reason", "{}", printable(run.end->detail));
  if (!info.model.empty())
    text.row("what", "{} on {}, {} images a step, {}", printable(info.model), printable(info.data),
             info.batch_size * info.accumulate * info.ranks, printable(info.dtype));
  if (!info.device.empty())
    text.row("where", "{}{}", printable(info.device),
             run.fact("hostname").empty() ? "" : ", " + printable(run.fact("hostname")));
  put_numbers(summary, text);
  if (run.steps.size() > 1) {
    const Series loss = average(run.steps.step, run.steps.loss, kWidth);
    if (!loss.y.empty())
      text.row("loss", "{}  {:.4g} to {:.4g}", sparkline(run.steps.loss, kWidth), loss.y.front(),
               loss.y.back());
  }
  std::size_t told = 0;
  const auto warn = [&](const std::string& warning) {
    if (told++ < kMostWarnings) text.row("warning", "{}", printable(warning));
  };
  for (const std::string& problem : run.problems) warn(problem);
  for (const metrics::Notice& notice : run.notices)
    warn(fmt::format("step {}: {}", notice.step, notice.text));
  if (run.steps.skipped > 0)
    warn(fmt::format("{} steps were skipped: a gradient was not finite", run.steps.skipped));
  if (told > kMostWarnings) text.row("", "and {} more warnings", told - kMostWarnings);
}

std::string value_text(const Comparison& row, const std::optional<double>& value) {
  if (!value) return "-";
  if (row.unit == "part" || row.name == "best top-1") return fmt::format("{:.2f}%", 100 * *value);
  if (row.unit == "B") return format_bytes(static_cast<std::uint64_t>(*value));
  if (row.unit == "s" && *value < 1) return fmt::format("{:.4g} ms", 1e3 * *value);
  return fmt::format("{:.4g}{}{}", *value, row.unit.empty() || row.unit.starts_with("1/") ? "" : " ",
                     row.unit.starts_with("1/") ? "" : row.unit);
}

std::string change_text(const Comparison& row, std::size_t i) {
  if (!row.values[0] || !row.values[i] || *row.values[0] == 0) return "";
  const auto& change = row.changes[i];
  if (!change)
    return fmt::format("{:+.2f}%  (one value: noise not known)", 100 * (*row.values[i] / *row.values[0] - 1));
  const std::string size = fmt::format("{:+.2f}%", 100 * change->change);
  if (change->interval.coverage < kConfidence) return size + "  (too few steps to judge)";
  const std::string interval =
      fmt::format("  (95%: {:+.2f}% to {:+.2f}%)", 100 * change->interval.low, 100 * change->interval.high);
  return size + interval + (change->beyond_noise() ? "  beyond noise" : "  within noise");
}

}  // namespace

std::string printable(const std::string& text) {
  std::string result = text.substr(0, 500);
  std::ranges::replace_if(
      result, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return result;
}

std::string sparkline(const std::vector<double>& values, std::size_t width) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const Series mean = average(values, values, width);
  if (mean.y.empty()) return "";
  const auto [low, high] = std::ranges::minmax(mean.y);
  std::string line;
  for (double value : mean.y) {
    const double part = high > low ? (value - low) / (high - low) : 0;
    line += kBlocks[std::min(7, static_cast<int>(part * 8))];
  }
  return line;
}

std::string terminal_text(const std::vector<const Run*>& runs) {
  Text text;
  std::vector<RunSummary> summaries;
  for (const Run* run : runs) {
    summaries.push_back(summarize(*run));
    put_run(*run, summaries.back(), text);
    text.line("");
  }
  if (runs.size() < 2) return text.take();
  const std::vector<Comparison> rows = compare(runs, summaries);
  for (std::size_t i = 1; i < runs.size(); ++i) {
    text.line("{} against {}:", printable(runs[i]->name), printable(runs[0]->name));
    for (const Comparison& row : rows) {
      text.line("  {:<22}{:>12} -> {:<12}{}", row.name, value_text(row, row.values[0]),
                value_text(row, row.values[i]), change_text(row, i));
    }
    text.line("");
  }
  return text.take();
}

}  // namespace redline::report
