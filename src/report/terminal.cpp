#include "report/terminal.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/quantity.h"
#include "base/text.h"
#include "metrics/console.h"
#include "report/comparison.h"
#include "report/thin.h"
#include "report/variability.h"

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

// Three or four digits in a readable unit: "812 us", "64.3 ms", "37.5 s".
std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.4g} us", 1e6 * seconds);
  if (seconds < 1) return fmt::format("{:.4g} ms", 1e3 * seconds);
  return seconds < 1000 ? fmt::format("{:.4g} s", seconds) : format_duration(seconds);
}

std::string energy_text(double joules) {
  return joules >= 3.6e6 ? fmt::format("{:.4g} kWh", joules / 3.6e6) : format_joules(joules);
}

void put_device(const RunSummary& summary, Text& text) {
  std::vector<std::string> parts;
  if (summary.clock_mhz) parts.push_back(fmt::format("{:.0f} MHz", *summary.clock_mhz));
  if (summary.energy) parts.push_back(fmt::format("{:.0f} W", summary.energy->power_w));
  if (summary.temperature_c) parts.push_back(fmt::format("up to {:.0f} °C", *summary.temperature_c));
  if (summary.memory_bytes)
    parts.push_back(format_bytes(static_cast<std::uint64_t>(*summary.memory_bytes)) + " of memory");
  if (!parts.empty()) text.row("device", "{}", fmt::join(parts, ", "));
  if (const auto& energy = summary.energy; energy && energy->joules) {
    parts = {energy_text(*energy->joules)};
    if (energy->joules_per_step) parts.push_back(fmt::format("{:.4g} J a step", *energy->joules_per_step));
    if (!energy->epochs.empty()) {
      double whole = 0;  // the longest epoch: the last one may have ended early
      for (const Energy::Epoch& epoch : energy->epochs) whole = std::max(whole, epoch.joules);
      parts.push_back(energy_text(whole) + " an epoch");
    }
    if (energy->images_per_joule) parts.push_back(fmt::format("{:.4g} images/J", *energy->images_per_joule));
    text.row("energy", "{}", fmt::join(parts, ", "));
  }
  parts.clear();
  for (const Throttle& held : summary.throttling)
    parts.push_back(
        fmt::format("{} {:.0f}% of the time", printable(words_of(held.reason)), 100 * held.share));
  if (!parts.empty()) text.row("throttled", "{}", fmt::join(parts, ", "));
  for (const std::string& disturbance : summary.disturbances)
    text.row("disturbed", "{}", printable(disturbance));
}

// The first step of each process is warm-up: it is in no figure of speed.
std::string warm_up_text(const Run& run) {
  const std::vector<std::size_t> timed = timed_steps(run);
  double seconds = 0;
  std::int64_t steps = 0;
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    if (std::ranges::binary_search(timed, i) || !std::isfinite(run.steps.seconds[i])) continue;
    seconds += training_seconds(run.steps, i);
    ++steps;
  }
  if (steps == 0) return "";
  return fmt::format(", without {} of warm-up ({})", counted(steps, "step"), time_text(seconds));
}

void put_numbers(const Run& run, const RunSummary& summary, Text& text) {
  if (summary.images_per_second) {
    std::string interval;
    if (const auto& range = summary.images_per_second_interval; range && range->coverage >= kConfidence)
      interval = fmt::format(" (95%: {:.1f} to {:.1f})", range->low, range->high);
    text.row("speed", "{:.1f} images/s{}, {:.1f} at the median step", *summary.images_per_second, interval,
             *summary.images_per_second_at_median);
  }
  if (summary.step_seconds) {
    const Summary& step = *summary.step_seconds;
    // A percentile beyond what so many steps can show would only be the slowest one, or near it.
    const auto percentile = [&](std::size_t percent, double seconds) {
      return step.count * (100 - percent) < 100 ? "" : fmt::format("{}% {}, ", percent, time_text(seconds));
    };
    text.row("step", "median {}, {}{}slowest {}{}", time_text(step.median), percentile(90, step.p90),
             percentile(99, step.p99), time_text(step.max), warm_up_text(run));
  }
  if (const auto& stalls = summary.stalls)
    text.row(
        "stalls", "{} took over {} times the median: {} lost, {:.0f}% of the time (the longest: step {}, {})",
        counted(static_cast<std::int64_t>(stalls->steps), "step"), kStallMedians, time_text(stalls->seconds),
        100 * stalls->share, stalls->longest_step, time_text(stalls->longest_seconds));
  if (summary.data_wait)
    text.row("data", "{:.1f}% of the training time spent waiting for data", 100 * *summary.data_wait);
  if (summary.best) {
    text.row("accuracy", "top-1 {:.2f}%, top-5 {:.2f}% after step {} (the best of all evaluations)",
             100 * summary.best->top1, 100 * summary.best->top5, summary.best->step);
  }
  if (run.end && run.end->target) text.row("target", "{}", metrics::target_text(*run.end->target));
  put_device(summary, text);
}

// Which rank the others waited for most often, and the time of the gradient exchange.
void put_ranks(const Run& run, Text& text) {
  if (run.info.ranks < 2) return;
  const Steps& steps = run.steps;
  std::map<std::int64_t, std::size_t> slowest;
  double waited = 0, seconds = 0;
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (std::isfinite(steps.slowest_rank[i])) ++slowest[static_cast<std::int64_t>(steps.slowest_rank[i])];
  for (std::size_t i : timed_steps(run)) {
    if (!std::isfinite(waiting_seconds(steps, i))) continue;
    waited += waiting_seconds(steps, i);
    seconds += training_seconds(steps, i);
  }
  std::string line = counted(run.info.ranks, "rank");
  if (seconds > 0)
    line += fmt::format(", {:.1f}% of the training time waiting for each other", 100 * waited / seconds);
  const auto most = std::ranges::max_element(slowest, {}, [](const auto& entry) { return entry.second; });
  if (most != slowest.end())
    line += fmt::format(", rank {} the slowest in {:.0f}% of the steps", most->first,
                        100.0 * static_cast<double>(most->second) / static_cast<double>(steps.size()));
  text.row("ranks", "{}", line);
}

// The profile in two lines: how busy the device was and with what, and the largest loss.
void put_profile(const Run& run, Text& text) {
  if (!run.profile) return;
  const auto json = nlohmann::json::parse(run.profile->json, nullptr, false);
  const auto number = [](const nlohmann::json& object, const char* name) {
    return object.is_object() && object.contains(name) && object[name].is_number()
               ? object[name].get<double>()
               : NAN;
  };
  const auto word = [](const nlohmann::json& object, const char* name) {
    const bool there = object.is_object() && object.contains(name) && object[name].is_string();
    return there ? printable(object[name].get<std::string>()) : std::string();
  };
  const auto list = [&](const char* name) {
    return json.is_object() && json.contains(name) && json[name].is_array() ? json[name]
                                                                            : nlohmann::json::array();
  };
  const double steps = number(json, "steps"), busy = number(json, "busy_seconds"),
               use = number(json, "utilisation");
  if (!(steps >= 1 && steps < 1e9)) return;
  std::string line = counted(static_cast<std::int64_t>(steps), "step") + " profiled";
  if (std::isfinite(use)) line += fmt::format(", device busy {:.1f}% of them", 100 * use);
  constexpr std::size_t kMostKinds = 3;
  std::string kinds;
  for (std::size_t i = 0; i < std::min(kMostKinds, list("kinds").size()); ++i) {
    const double share = number(list("kinds")[i], "seconds") * steps / busy;  // listed per step
    if (std::isfinite(share))
      kinds += fmt::format("{}{} {:.0f}%", kinds.empty() ? ": " : ", ", word(list("kinds")[i], "name"),
                           100 * share);
  }
  text.row("profile", "{}{}", line, kinds);
  const auto losses = list("losses");
  if (!losses.empty() && !word(losses[0], "what").empty()) {
    const double lost = number(losses[0], "seconds");
    text.row("lost", "{}{}", word(losses[0], "what"),
             std::isfinite(lost) ? fmt::format(": {} a step", time_text(lost)) : "");
  }
}

// What disturbed the run is a warning; what bounds its speed is not.
void put_warnings(const Run& run, Text& text) {
  std::size_t told = 0;
  const auto warn = [&](const std::string& warning) {
    if (told++ < kMostWarnings) text.row("warning", "{}", printable(warning));
  };
  for (const std::string& problem : run.problems) warn(problem);
  std::int64_t failed = 0;
  const metrics::Checkpoint* last = nullptr;
  for (const metrics::Checkpoint& checkpoint : run.checkpoints) {
    if (checkpoint.error.empty()) continue;
    ++failed;
    last = &checkpoint;
  }
  if (last != nullptr)
    warn(fmt::format("{} could not be written, the last after step {}: {}", counted(failed, "checkpoint"),
                     last->step, last->error));
  for (const metrics::Notice& notice : run.notices) {
    if (notice.what == "bound") {
      text.row("bound", "{}", printable(notice.text));
    } else if (notice.what != "disturbed") {
      warn(fmt::format("step {}: {}", notice.step, notice.text));
    }
  }
  if (run.steps.skipped > 0) {
    const auto skipped = static_cast<std::int64_t>(run.steps.skipped);
    warn(fmt::format("{} skipped: a gradient was not finite",
                     counted(skipped, "step") + (skipped == 1 ? " was" : " were")));
  }
  if (told > kMostWarnings)
    text.row("", "and {}", counted(static_cast<std::int64_t>(told - kMostWarnings), "more warning"));
}

// What makes the training loss another quantity than the validation loss.
std::string loss_kind(const Run& run) {
  const auto is_set = [&](std::string_view name) {
    const auto found = std::ranges::find(run.options, name, &Pairs::value_type::first);
    return found != run.options.end() && std::strtod(found->second.c_str(), nullptr) > 0;
  };
  std::string text;
  if (is_set("optimizer.label_smoothing")) text += ", with label smoothing";
  if (is_set("augment.mixup_alpha") || is_set("augment.cutmix_alpha")) text += ", of mixed images";
  return text;
}

void put_run(const Run& run, const RunSummary& summary, Text& text) {
  const metrics::RunInfo& info = run.info;
  text.line("{}: {} after step {} of {}, {}", printable(run.name), name_of(summary.state), summary.steps,
            summary.total_steps, format_duration(summary.seconds));
  if (run.end && !run.end->detail.empty()) text.row("reason", "{}", printable(run.end->detail));
  if (!info.model.empty())
    text.row("what", "{} on {}, {} a step, {}", printable(info.model), printable(info.data),
             counted(info.batch_size * info.accumulate * info.ranks, "image"), printable(info.dtype));
  if (!info.device.empty())
    text.row("where", "{}{}", printable(info.device),
             run.fact("hostname").empty() ? "" : ", " + printable(run.fact("hostname")));
  put_ranks(run, text);
  put_numbers(run, summary, text);
  put_profile(run, text);
  if (run.steps.size() > 1) {
    const Series loss = average(run.steps.step, run.steps.loss, kWidth);
    if (!loss.y.empty())
      text.row("loss", "{}  {:.4g} to {:.4g}{}", sparkline(run.steps.loss, kWidth), loss.y.front(),
               loss.y.back(), loss_kind(run));
  }
  put_warnings(run, text);
}

std::string value_text(const Comparison& row, const std::optional<double>& value) {
  if (!value) return "-";
  if (row.unit == "part") return fmt::format("{:.2f}%", 100 * *value);
  if (row.unit == "B") return format_bytes(static_cast<std::uint64_t>(*value));
  if (row.unit == "s") return time_text(*value);
  if (row.unit == "J") return energy_text(*value);
  const bool rate = row.unit.starts_with("1/");
  return fmt::format("{}{}{}", *value < 1e4 ? fmt::format("{:.4g}", *value) : fmt::format("{:.0f}", *value),
                     row.unit.empty() || rate ? "" : " ", rate ? "" : row.unit);
}

std::string signed_percent(double part) { return format_signed(100 * part, 2); }

// A change with its interval and verdict.
std::string change_text(const Comparison& row, std::size_t group, std::optional<double> before,
                        std::optional<double> after) {
  if (!before || !after) return "";
  const bool points = row.by_difference();
  const char* unit = points ? " points" : "%";
  const auto& change = row.changes[group];
  if (!change && row.verdicts[group] == "unlike") return "not comparable";
  if (!change) {
    if (points) return signed_percent(*after - *before) + " points  (noise not known)";
    return *before == 0 ? "" : signed_percent(*after / *before - 1) + "%  (noise not known)";
  }
  const std::string size = signed_percent(change->change) + unit;
  const std::string& verdict = row.verdicts[group];
  const auto between = [&](const ConfidenceInterval& interval) {
    return fmt::format("{:.0f}%: {} to {}{}", 100 * interval.coverage, signed_percent(interval.low),
                       signed_percent(interval.high), unit);
  };
  if (verdict == "unlike") return size + "  not comparable";
  const bool two_runs = change->evidence == Evidence::two_runs;
  if (change->interval.coverage < kConfidence) {
    if (points && two_runs)
      return fmt::format("{}  ({} by the number of images alone)  undecided", size, between(*change->within));
    if (change->evidence == Evidence::repeats) return size + "  (too few or too uneven runs to judge)";
    if (two_runs) return size + "  (too few or too uneven steps to judge)";
    return size + (row.timed() ? "  (too few steps to judge)" : "  (one run per side)");
  }
  std::string words = verdict;
  if (two_runs && !verdict.empty() && verdict != "undecided") words += " in these two runs";
  return fmt::format("{}  ({})  {}", size, between(change->interval), words);
}

// Cut to a number of characters; what was cut off is "…".
std::string cut(const std::string& text, std::size_t most) {
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  if (static_cast<std::size_t>(std::ranges::count_if(text, begins)) <= most) return text;
  std::size_t end = 0, count = 0;
  while (end < text.size() && (count < most - 1 || !begins(text[end]))) count += begins(text[end++]) ? 1 : 0;
  return text.substr(0, end) + "…";
}

// Names without the words that all of them begin with, where they are long.
std::vector<std::string> labels_of(const std::vector<const Run*>& runs, std::size_t most) {
  std::vector<std::string> labels;
  for (const Run* run : runs) labels.push_back(printable(run->name));
  const std::string& first = labels.front();
  std::size_t same = 0;
  for (std::size_t at = 0; (at = first.find_first_of("-_/", at)) != first.npos;) {
    ++at;
    const auto begins = [&](const std::string& name) {
      return name.size() > at && name.starts_with(first.substr(0, at));
    };
    if (!std::ranges::all_of(labels, begins)) break;
    same = at;
  }
  const bool longs = std::ranges::any_of(labels, [&](const std::string& name) { return name.size() > most; });
  for (std::string& label : labels) label = cut(longs && same > 0 ? "…" + label.substr(same) : label, most);
  return labels;
}

void put_differences(const Compared& compared, const std::vector<const Run*>& runs, Text& text) {
  constexpr std::size_t kColumns = 4, kNarrow = 20;  // of values side by side
  if (compared.differences.empty()) {
    text.line("All runs have the same settings.");
    return text.line("");
  }
  text.line("Settings that differ:");
  if (runs.size() > kColumns) {
    for (const Difference& row : compared.differences) {
      Unlike counts{row.name, {}};
      for (const std::string& value : row.values) ++counts.values[value.empty() ? "-" : printable(value)];
      text.line("  {}", text_of(counts));
    }
    return text.line("");
  }
  std::size_t names = 0;
  for (const Difference& row : compared.differences) names = std::max(names, row.name.size());
  const auto put = [&](const std::string& name, const std::vector<std::string>& cells) {
    std::string values;
    for (const std::string& cell : cells) values += fmt::format("  {:<{}}", cell, kNarrow);
    text.line("  {:<{}}{}", name, names, values);
  };
  const std::vector<std::string> labels = labels_of(runs, kNarrow);
  put("", labels);
  for (const Difference& row : compared.differences) {
    std::vector<std::string> cells;
    for (const std::string& value : row.values) cells.push_back(value.empty() ? "-" : printable(value));
    const bool wide =
        std::ranges::any_of(cells, [&](const std::string& cell) { return cell.size() > kNarrow; });
    put(row.name, wide ? std::vector<std::string>() : cells);
    if (!wide) continue;
    for (std::size_t i = 0; i < runs.size(); ++i) text.line("    {:<{}}  {}", labels[i], kNarrow, cells[i]);
  }
  text.line("");
}

void put_group(const Compared& compared, std::size_t g, const std::vector<RunSummary>& summaries,
               Text& text) {
  const RunGroup &first = compared.groups.front(), &group = compared.groups[g];
  text.line("{} against {}:", printable(group.name), printable(first.name));
  for (const std::string& reason : compared.unlike[g]) text.line("  unlike: {}", printable(reason));
  for (const RunGroup* side : {&first, &group})
    for (std::size_t run : side->runs)
      for (const std::string& disturbance : summaries[run].disturbances)
        text.line("  disturbed, {}: {}", printable(side->name), printable(disturbance));
  for (const Comparison& row : compared.rows) {
    const auto before = value_of(row, first), after = value_of(row, group);
    if (!before && !after) continue;
    text.line("  {:<24}{:>12} -> {:<12}{}", row.name, value_text(row, before), value_text(row, after),
              change_text(row, g, before, after));
  }
  for (const std::string& advice : compared.advice[g]) text.line("  {}", advice);
  text.line("");
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

std::string terminal_text(const std::vector<const Run*>& runs, bool judge_unlike) {
  Text text;
  std::vector<RunSummary> summaries;
  for (const Run* run : runs) summaries.push_back(summarize(*run));
  const Compared compared = compare(runs, summaries, judge_unlike);
  if (runs.size() > 1) put_differences(compared, runs, text);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    put_run(*runs[i], summaries[i], text);
    text.line("");
  }
  for (std::size_t g = 1; g < compared.groups.size(); ++g) put_group(compared, g, summaries, text);
  return text.take();
}

}  // namespace redline::report
