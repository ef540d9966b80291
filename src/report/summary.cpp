#include "report/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace redline::report {
namespace {

constexpr double kMilli = 1e-3;

std::vector<double> finite(const std::vector<float>& values) {
  std::vector<double> kept;
  for (float value : values)
    if (std::isfinite(value)) kept.push_back(value);
  return kept;
}

// The column's values that are known, of all processes.
std::vector<double> samples_of(const Run& run, std::string_view name) {
  std::vector<double> values;
  for (const Telemetry& telemetry : run.telemetry) {
    const Telemetry::Column* column = telemetry.column(name);
    if (column == nullptr) continue;
    const std::vector<double> found = finite(column->values);
    values.insert(values.end(), found.begin(), found.end());
  }
  return values;
}

// Of the GPU where it says so, else of the CPU.
std::vector<double> samples_of_device(const Run& run, const std::string& gpu_name,
                                      const std::string& cpu_name) {
  std::vector<double> values = samples_of(run, gpu_name);
  return values.empty() ? samples_of(run, cpu_name) : values;
}

// Mean power and its sum over time, of all devices together. Ranks may share a GPU, and those of a machine
// share its processors: each counts once.
void summarize_power(const Run& run, RunSummary& summary) {
  const bool gpu = !samples_of(run, "gpu_power_mw").empty();
  std::set<std::string> counted;
  for (const Telemetry& telemetry : run.telemetry) {
    const Telemetry::Column* power = telemetry.column(gpu ? "gpu_power_mw" : "cpu_power_mw");
    const std::vector<double> known = power == nullptr ? std::vector<double>() : finite(power->values);
    const std::string owner = telemetry.host.empty() ? telemetry.source
                              : gpu                  ? telemetry.host + "/" + telemetry.device
                                                     : telemetry.host;
    if (known.empty() || !counted.insert(owner).second) continue;
    summary.power_w = summary.power_w.value_or(0) + kMilli * mean(known);
    for (std::size_t i = 1; i < telemetry.seconds.size(); ++i) {
      const double before = power->values[i - 1], now = power->values[i];
      if (!std::isfinite(before) || !std::isfinite(now)) continue;
      summary.energy_j = summary.energy_j.value_or(0) +
                         kMilli * (before + now) / 2 * (telemetry.seconds[i] - telemetry.seconds[i - 1]);
    }
  }
}

void summarize_telemetry(const Run& run, RunSummary& summary) {
  summarize_power(run, summary);
  const auto temperature = samples_of_device(run, "gpu_temperature_c", "cpu_temperature_c");
  if (!temperature.empty()) summary.temperature_c = *std::ranges::max_element(temperature);
  const auto clock = samples_of_device(run, "gpu_sm_clock_mhz", "cpu_clock_mhz");
  if (!clock.empty()) summary.clock_mhz = median(clock);
  const auto memory = samples_of_device(run, "gpu_memory_used_bytes", "memory_resident_bytes");
  if (!memory.empty()) summary.memory_bytes = *std::ranges::max_element(memory);
}

double sum_of_finite(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0,
                         [](double sum, double value) { return std::isfinite(value) ? sum + value : sum; });
}

std::optional<double> final_loss_of(const Steps& steps) {
  const std::size_t count = std::min<std::size_t>(100, std::max<std::size_t>(1, steps.size() / 10));
  if (steps.size() == 0) return {};
  std::vector<double> last(steps.loss.end() - static_cast<std::ptrdiff_t>(count), steps.loss.end());
  std::erase_if(last, [](double loss) { return !std::isfinite(loss); });
  return last.empty() ? std::nullopt : std::optional(mean(last));
}

// Two shares of samples, as evaluations give them: what chance does to them is binomial.
std::optional<Change> compare_accuracies(const metrics::Evaluation& before,
                                         const metrics::Evaluation& after) {
  if (before.samples < 1 || after.samples < 1 || !(before.top1 > 0) || !std::isfinite(after.top1)) return {};
  const auto variance = [](const metrics::Evaluation& evaluation) {
    return evaluation.top1 * (1 - evaluation.top1) / static_cast<double>(evaluation.samples);
  };
  constexpr double kZ = 1.959963984540054;  // of 95%
  const double difference = after.top1 - before.top1;
  const double reach = kZ * std::sqrt(variance(before) + variance(after));
  Change change;
  change.count = static_cast<std::size_t>(std::min(before.samples, after.samples));
  change.change = difference / before.top1;
  change.interval = {(difference - reach) / before.top1, (difference + reach) / before.top1, kConfidence};
  return change;
}

Change inverse(const Change& change) {
  Change result = change;
  result.change = 1 / (1 + change.change) - 1;
  result.interval.low = 1 / (1 + change.interval.high) - 1;
  result.interval.high = 1 / (1 + change.interval.low) - 1;
  return result;
}

// A quantity that each run has as one number; its noise is not known.
template <typename Value>
Comparison plain(std::string name, std::string unit, Comparison::Better better,
                 const std::vector<RunSummary>& summaries, Value value) {
  Comparison row{std::move(name), std::move(unit), better, {}, {}};
  for (const RunSummary& summary : summaries) row.values.push_back(value(summary));
  row.changes.resize(summaries.size());
  return row;
}

// What scaling leaves of the speed of one.
Comparison speed_of_a_rank(const std::vector<const Run*>& runs, const std::vector<RunSummary>& summaries) {
  Comparison row = plain("images per second a rank", "1/s", Comparison::Better::higher, summaries,
                         [](const RunSummary& run) { return run.images_per_second; });
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (row.values[i]) *row.values[i] /= static_cast<double>(runs[i]->info.ranks);
  return row;
}

}  // namespace

State state_of(const Run& run) {
  if (!run.end) return State::unfinished;
  if (run.end->reason == "finished") return State::finished;
  return run.end->reason == "failed" ? State::failed : State::interrupted;
}

const char* name_of(State state) {
  constexpr const char* kNames[] = {"finished", "interrupted", "failed", "unfinished"};
  return kNames[static_cast<int>(state)];
}

RunSummary summarize(const Run& run) {
  RunSummary summary;
  const Steps& steps = run.steps;
  summary.state = state_of(run);
  summary.total_steps = run.info.total_steps;
  summary.steps = steps.size() == 0 ? 0 : static_cast<std::int64_t>(steps.step.back());
  summary.seconds = run.end && std::isfinite(run.end->seconds)                ? run.end->seconds
                    : steps.size() > 0 && std::isfinite(steps.elapsed.back()) ? steps.elapsed.back()
                                                                              : 0;
  if (std::vector<double> times = step_seconds(run); !times.empty()) {
    summary.step_seconds = redline::summarize(std::move(times));
    std::vector<double> samples = steps.samples;
    std::erase_if(samples, [](double count) { return !std::isfinite(count); });
    const double images = samples.empty() ? 0 : median(std::move(samples));
    const ConfidenceInterval& interval = summary.step_seconds->median_interval;
    if (images > 0) {
      summary.images_per_second = images / summary.step_seconds->median;
      summary.images_per_second_interval = {images / interval.high, images / interval.low, interval.coverage};
    }
  }
  const double total = sum_of_finite(steps.seconds) + sum_of_finite(steps.gap_seconds) -
                       sum_of_finite(steps.evaluation_seconds);
  if (total > 0) summary.data_wait = sum_of_finite(steps.data_seconds) / total;
  summary.final_loss = final_loss_of(steps);
  for (const metrics::Evaluation& evaluation : run.evaluations) {
    summary.last = evaluation;
    if (!summary.best || evaluation.top1 > summary.best->top1) summary.best = evaluation;
  }
  summarize_telemetry(run, summary);
  return summary;
}

std::vector<Comparison> compare(const std::vector<const Run*>& runs,
                                const std::vector<RunSummary>& summaries) {
  using Better = Comparison::Better;
  using Optional = std::optional<double>;
  std::vector<Comparison> rows;
  Comparison speed = plain("images per second", "1/s", Better::higher, summaries,
                           [](const RunSummary& run) { return run.images_per_second; });
  Comparison step = plain("median step", "s", Better::lower, summaries, [](const RunSummary& run) {
    return run.step_seconds ? Optional(run.step_seconds->median) : Optional();
  });
  Comparison accuracy = plain("best top-1", "", Better::higher, summaries, [](const RunSummary& run) {
    return run.best ? Optional(run.best->top1) : Optional();
  });
  const std::vector<double> first = runs.empty() ? std::vector<double>() : step_seconds(*runs.front());
  for (std::size_t i = 1; i < runs.size(); ++i) {
    const std::vector<double> times = step_seconds(*runs[i]);
    if (!first.empty() && !times.empty()) {
      const Change change = compare_medians(first, times);
      step.changes[i] = change;
      // Steps of other sizes have other speeds: the ratio of images comes in.
      if (speed.values[0] && speed.values[i]) {
        Change faster = inverse(change);
        const double images = *speed.values[i] / *speed.values[0] / (1 + faster.change);
        for (double* value : {&faster.change, &faster.interval.low, &faster.interval.high})
          *value = (1 + *value) * images - 1;
        speed.changes[i] = faster;
      }
    }
    if (summaries[0].best && summaries[i].best)
      accuracy.changes[i] = compare_accuracies(*summaries[0].best, *summaries[i].best);
  }
  rows.push_back(std::move(speed));
  if (std::ranges::any_of(runs, [](const Run* run) { return run->info.ranks > 1; })) {
    rows.push_back(speed_of_a_rank(runs, summaries));
  }
  rows.push_back(std::move(step));
  rows.push_back(plain("99th percentile step", "s", Better::lower, summaries, [](const RunSummary& run) {
    return run.step_seconds ? Optional(run.step_seconds->p99) : Optional();
  }));
  rows.push_back(plain("waiting for data", "part", Better::lower, summaries,
                       [](const RunSummary& run) { return run.data_wait; }));
  rows.push_back(std::move(accuracy));
  rows.push_back(plain("final training loss", "", Better::lower, summaries,
                       [](const RunSummary& run) { return run.final_loss; }));
  rows.push_back(
      plain("mean power", "W", Better::lower, summaries, [](const RunSummary& run) { return run.power_w; }));
  rows.push_back(plain("images per joule", "1/J", Better::higher, summaries, [](const RunSummary& run) {
    return run.images_per_second && run.power_w ? Optional(*run.images_per_second / *run.power_w)
                                                : Optional();
  }));
  rows.push_back(plain("median clock", "MHz", Better::neither, summaries,
                       [](const RunSummary& run) { return run.clock_mhz; }));
  rows.push_back(plain("highest temperature", "°C", Better::neither, summaries,
                       [](const RunSummary& run) { return run.temperature_c; }));
  rows.push_back(plain("most memory", "B", Better::lower, summaries,
                       [](const RunSummary& run) { return run.memory_bytes; }));
  rows.push_back(plain("duration", "s", Better::lower, summaries, [](const RunSummary& run) {
    return run.seconds > 0 ? Optional(run.seconds) : Optional();
  }));
  std::erase_if(rows,
                [](const Comparison& row) { return std::ranges::none_of(row.values, &Optional::has_value); });
  return rows;
}

std::vector<Difference> differences(const std::vector<const Run*>& runs) {
  std::vector<Difference> found;
  const auto put = [&](const Pairs Run::*list, std::size_t run_index) {
    for (const auto& [name, value] : runs[run_index]->*list) {
      auto at = std::ranges::find(found, name, &Difference::name);
      if (at == found.end()) {
        found.push_back({name, std::vector<std::string>(runs.size())});
        at = std::prev(found.end());
      }
      at->values[run_index] = value;
    }
  };
  for (std::size_t i = 0; i < runs.size(); ++i) put(&Run::facts, i);
  for (std::size_t i = 0; i < runs.size(); ++i) put(&Run::options, i);
  constexpr std::string_view kAlwaysDiffer[] = {"name", "started", "command", "run.name"};
  std::erase_if(found, [&](const Difference& row) {
    if (std::ranges::find(kAlwaysDiffer, row.name) != std::end(kAlwaysDiffer)) return true;
    return std::ranges::all_of(row.values,
                               [&](const std::string& value) { return value == row.values.front(); });
  });
  return found;
}

}  // namespace redline::report
