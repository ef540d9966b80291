#include "report/energy.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/statistics.h"

namespace redline::report {
namespace {

constexpr double kMilli = 1e-3;

bool has_values(const Telemetry::Column* column) {
  return column != nullptr &&
         std::ranges::any_of(column->values, [](float value) { return std::isfinite(value); });
}

// The energy that one device had used at each of its samples.
struct Drawn {
  std::vector<double> seconds, joules;
  double power_sum = 0;  // W, over the samples that have one
  std::size_t samples = 0;

  double at(double time) const {
    const auto after = std::ranges::upper_bound(seconds, time);
    if (after == seconds.begin()) return joules.front();
    if (after == seconds.end()) return joules.back();
    const auto i = static_cast<std::size_t>(after - seconds.begin());
    const double part = (time - seconds[i - 1]) / (seconds[i] - seconds[i - 1]);
    return joules[i - 1] + part * (joules[i] - joules[i - 1]);
  }
};

// The longest time between two samples of one process, in seconds. Between the processes of a resumed run,
// more passes, and what the device did then is not the run's.
double longest_interval(const Telemetry& telemetry) {
  constexpr double kShortestPause = 5, kIntervals = 10;
  std::vector<double> intervals;
  for (std::size_t i = 1; i < telemetry.seconds.size(); ++i)
    intervals.push_back(telemetry.seconds[i] - telemetry.seconds[i - 1]);
  return intervals.empty() ? 0 : std::max(kShortestPause, kIntervals * median(std::move(intervals)));
}

// Energy by a counter that only grows; nothing if it is missing or was reset.
std::optional<double> counted_joules(const Telemetry& telemetry, double longest) {
  const Telemetry::Column* counter = telemetry.column("gpu_energy_mj");
  if (!has_values(counter)) return {};
  double joules = 0;
  std::optional<std::size_t> before;  // the last sample that has it
  for (std::size_t i = 0; i < telemetry.seconds.size(); ++i) {
    if (!std::isfinite(counter->values[i])) continue;
    if (before && telemetry.seconds[i] - telemetry.seconds[*before] <= longest) {
      const double grown =
          static_cast<double>(counter->values[i]) - static_cast<double>(counter->values[*before]);
      if (grown < 0) return {};
      joules += kMilli * grown;
    }
    before = i;
  }
  return joules > 0 ? std::optional(joules) : std::nullopt;
}

Drawn drawn_by(const Telemetry& telemetry, const Telemetry::Column& power) {
  Drawn drawn;
  const double longest = longest_interval(telemetry);
  for (std::size_t i = 0; i < telemetry.seconds.size(); ++i) {
    const double now = kMilli * static_cast<double>(power.values[i]);
    if (!std::isfinite(now)) continue;
    double joules = drawn.samples == 0 ? 0 : drawn.joules.back();
    const double before = i == 0 ? now : kMilli * static_cast<double>(power.values[i - 1]);
    const double passed = i == 0 ? 0 : telemetry.seconds[i] - telemetry.seconds[i - 1];
    if (std::isfinite(before) && passed <= longest)  // skip an interval with one end unknown
      joules += (before + now) / 2 * passed;
    drawn.seconds.push_back(telemetry.seconds[i]);
    drawn.joules.push_back(joules);
    drawn.power_sum += now;
    ++drawn.samples;
  }
  // The counter gives the exact total; the power samples give its distribution over the run.
  const std::optional<double> counted = counted_joules(telemetry, longest);
  if (counted && drawn.joules.back() > 0) {
    const double scale = *counted / drawn.joules.back();
    for (double& joules : drawn.joules) joules *= scale;
  }
  return drawn;
}

std::vector<Drawn> devices_of(const Run& run) {
  const bool gpu = std::ranges::any_of(
      run.telemetry, [](const Telemetry& telemetry) { return has_values(telemetry.column("gpu_power_mw")); });
  std::set<std::string> counted;
  std::vector<Drawn> devices;
  for (const Telemetry& telemetry : run.telemetry) {
    const Telemetry::Column* power = telemetry.column(gpu ? "gpu_power_mw" : "cpu_power_mw");
    const std::string owner = telemetry.host.empty() ? telemetry.source
                              : gpu                  ? telemetry.host + "/" + telemetry.device
                                                     : telemetry.host;
    if (has_values(power) && counted.insert(owner).second) devices.push_back(drawn_by(telemetry, *power));
  }
  return devices;
}

// Sampling starts with training, so both time axes agree until the process ends.
void add_training(const Run& run, const std::vector<Drawn>& devices, Energy& energy) {
  const Steps& steps = run.steps;
  double joules = 0, images = 0;
  std::size_t count = 0;
  double covered = devices.front().seconds.back();
  for (const Drawn& device : devices) covered = std::min(covered, device.seconds.back());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double end = steps.elapsed[i], seconds = training_seconds(steps, i);
    if (!std::isfinite(end) || !std::isfinite(seconds) || !(steps.samples[i] > 0) || end > covered) continue;
    double drawn = 0;
    for (const Drawn& device : devices) drawn += device.at(end) - device.at(end - seconds);
    joules += drawn;
    images += steps.samples[i];
    ++count;
    const auto epoch = std::isfinite(steps.epoch[i]) ? static_cast<std::int64_t>(steps.epoch[i]) : 0;
    if (energy.epochs.empty() || energy.epochs.back().epoch != epoch)
      energy.epochs.push_back({epoch, 0, 0, 0});
    Energy::Epoch& last = energy.epochs.back();
    last.joules += drawn;
    last.images += steps.samples[i];
    ++last.steps;
  }
  if (!(joules > 0)) return energy.epochs.clear();
  energy.joules_per_step = joules / static_cast<double>(count);
  energy.images_per_joule = images / joules;
}

// The two time axes do not match: use the mean power times the training time.
void add_training_by_mean(const Run& run, Energy& energy) {
  const Steps& steps = run.steps;
  double seconds = 0, images = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double taken = training_seconds(steps, i);
    if (!std::isfinite(taken) || !(steps.samples[i] > 0)) continue;
    seconds += taken;
    images += steps.samples[i];
    ++count;
  }
  if (!(seconds * energy.power_w > 0)) return;
  energy.joules_per_step = seconds * energy.power_w / static_cast<double>(count);
  energy.images_per_joule = images / (seconds * energy.power_w);
}

}  // namespace

std::optional<Energy> energy_of(const Run& run) {
  const std::vector<Drawn> devices = devices_of(run);
  if (devices.empty()) return {};
  Energy energy;
  for (const Drawn& device : devices) {
    energy.power_w += device.power_sum / static_cast<double>(device.samples);
    if (device.samples > 1) energy.joules = energy.joules.value_or(0) + device.joules.back();
  }
  if (energy.joules && run.resumes == 0) {
    add_training(run, devices, energy);
  } else {
    add_training_by_mean(run, energy);
  }
  return energy;
}

}  // namespace redline::report
