#include "report/summary.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "profile/disturbance.h"

namespace redline::report {
namespace {

std::vector<double> finite(const std::vector<float>& values) {
  std::vector<double> kept;
  for (float value : values)
    if (std::isfinite(value)) kept.push_back(value);
  return kept;
}

// The known values of a column, over all processes.
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

// From the GPU if it reports the value, else from the CPU.
std::vector<double> samples_of_device(const Run& run, const std::string& gpu_name,
                                      const std::string& cpu_name) {
  std::vector<double> values = samples_of(run, gpu_name);
  return values.empty() ? samples_of(run, cpu_name) : values;
}

std::vector<Throttle> throttling_of(const Run& run) {
  std::map<std::string, double> held;  // seconds
  double total = 0;
  for (const Telemetry& telemetry : run.telemetry) {
    if (telemetry.seconds.empty()) continue;
    const double seconds = telemetry.seconds.back();
    total += seconds;
    for (const Throttle& entry : throttle_of(telemetry, 0, seconds))
      held[entry.reason] += entry.share * seconds;
  }
  std::vector<Throttle> found;
  for (const auto& [reason, seconds] : held) found.push_back({reason, seconds / total});
  std::ranges::stable_sort(found, std::ranges::greater{}, &Throttle::share);
  return found;
}

// What a run's samples say about its machine, so far as they are written.
profile::TelemetrySummary machine_of(const Run& run) {
  profile::TelemetrySummary machine;
  for (const Telemetry& telemetry : run.telemetry)
    if (!telemetry.seconds.empty()) machine.seconds = std::max(machine.seconds, telemetry.seconds.back());
  const auto steal = samples_of(run, "cpu_steal_pct"), others = samples_of(run, "cpu_others_pct"),
             busy = samples_of(run, "cpu_use");
  const double cores = std::strtod(run.fact("cores").c_str(), nullptr);
  if (!steal.empty() && !others.empty() && !busy.empty() && cores > 0)
    machine.cpu = profile::CpuShares{mean(busy) / cores, mean(others) / 100, mean(steal) / 100};
  if (const auto processes = samples_of(run, "gpu_other_processes"); !processes.empty())
    machine.other_processes = static_cast<unsigned>(*std::ranges::max_element(processes));
  return machine;
}

// What the run said when it ended. One that did not is judged by its samples, and by the same rules.
std::vector<std::string> disturbances_of(const Run& run) {
  std::vector<std::string> found;
  const auto add = [&](const std::string& what, const std::string& text) {
    if (what == "disturbed" && std::ranges::find(found, text) == found.end()) found.push_back(text);
  };
  // Each process of a run that was resumed has a say.
  for (const metrics::Notice& notice : run.notices)
    add(notice.what,
        run.resumes > 0 ? fmt::format("{} (up to step {})", notice.text, notice.step) : notice.text);
  if (run.end) return found;
  const bool on_gpu = !run.fact("device_address").empty();
  for (const profile::Finding& finding : profile::findings(machine_of(run), !on_gpu, run.info.ranks == 1))
    add(finding.what, finding.text);
  return found;
}

void summarize_telemetry(const Run& run, RunSummary& summary) {
  summary.energy = energy_of(run);
  const auto temperature = samples_of_device(run, "gpu_temperature_c", "cpu_temperature_c");
  if (!temperature.empty()) summary.temperature_c = *std::ranges::max_element(temperature);
  const auto clock = samples_of_device(run, "gpu_sm_clock_mhz", "cpu_clock_mhz");
  if (!clock.empty()) summary.clock_mhz = median(clock);
  const auto memory = samples_of_device(run, "gpu_memory_used_bytes", "memory_resident_bytes");
  if (!memory.empty()) summary.memory_bytes = *std::ranges::max_element(memory);
  summary.throttling = throttling_of(run);
  summary.disturbances = disturbances_of(run);
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

std::optional<Stalls> stalls_of(const Run& run) {
  constexpr double kMuch = 0.01;
  std::vector<double> times;
  for (std::size_t i : timed_steps(run)) times.push_back(training_seconds(run.steps, i));
  if (times.empty()) return {};
  const double usual = median(times), all = sum_of_finite(times);
  Stalls stalls;
  for (std::size_t i : timed_steps(run)) {
    const double seconds = training_seconds(run.steps, i);
    if (seconds <= kStallMedians * usual) continue;
    ++stalls.steps;
    stalls.seconds += seconds - usual;
    if (seconds > stalls.longest_seconds) {
      stalls.longest_seconds = seconds;
      stalls.longest_step = static_cast<std::int64_t>(run.steps.step[i]);
    }
  }
  stalls.share = stalls.seconds / all;
  return stalls.share < kMuch ? std::nullopt : std::optional(stalls);
}

void summarize_speed(const Run& run, RunSummary& summary) {
  if (const std::vector<double> times = step_seconds(run); !times.empty()) {
    summary.step_seconds = redline::summarize(times);
    summary.step_seconds->median_interval = median_interval(times);
  }
  const std::vector<double> per_image = seconds_per_image(run);
  if (per_image.empty()) return;
  double training = 0, waited = 0;
  for (std::size_t i : timed_steps(run)) {
    training += training_seconds(run.steps, i);
    if (std::isfinite(run.steps.data_seconds[i])) waited += run.steps.data_seconds[i];
  }
  summary.data_wait = waited / training;
  const ConfidenceInterval interval = mean_interval(per_image);
  summary.images_per_second = 1 / mean(per_image);
  if (interval.coverage > 0)
    summary.images_per_second_interval = {1 / interval.high, 1 / interval.low, interval.coverage};
  std::vector<double> samples;
  for (std::size_t i : timed_steps(run))
    if (run.steps.samples[i] > 0) samples.push_back(run.steps.samples[i]);
  summary.images_per_second_at_median = median(std::move(samples)) / summary.step_seconds->median;
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
  summarize_speed(run, summary);
  summary.stalls = stalls_of(run);
  summary.final_loss = final_loss_of(steps);
  for (const metrics::Evaluation& evaluation : run.evaluations) {
    summary.last = evaluation;
    if (!summary.best || evaluation.top1 > summary.best->top1) summary.best = evaluation;
  }
  summarize_telemetry(run, summary);
  return summary;
}

double total_seconds(const Run& run, const TimeShare& share) {
  if (!run.end || !std::isfinite(run.end->step_seconds)) return sum_of_finite(run.steps.*share.seconds);
  return share.gap == nullptr ? run.end->step_seconds : run.end->gap.*share.gap;
}

std::vector<double> seconds_per_image(const Run& run) {
  std::vector<double> seconds;
  double images = 0;
  for (std::size_t i : timed_steps(run)) {
    if (!(run.steps.samples[i] > 0)) continue;
    seconds.push_back(training_seconds(run.steps, i));
    images += run.steps.samples[i];
  }
  // Divided by the images of a mean step, so that the mean is total time over total images.
  for (double& value : seconds) value *= static_cast<double>(seconds.size()) / images;
  return seconds;
}

}  // namespace redline::report
