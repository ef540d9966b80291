// Run folders as input to a variability study.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <regex>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "base/statistics.h"
#include "report/settings.h"
#include "report/variability.h"

namespace redline::report {
namespace {

constexpr std::size_t kLongestHost = 253;  // of a DNS name; bounds the work of the regular expression

// Samples from `from` to `to`, in telemetry seconds.
double sensor(const Telemetry& telemetry, std::string_view name, double scale, double from = 0,
              double to = std::numeric_limits<double>::infinity()) {
  const Telemetry::Column* column = telemetry.column(name);
  if (column == nullptr) return kNaN;
  std::vector<double> values;
  const std::size_t count = std::min(column->values.size(), telemetry.seconds.size());
  for (std::size_t i = 0; i < count; ++i)
    if (std::isfinite(column->values[i]) && telemetry.seconds[i] >= from && telemetry.seconds[i] <= to)
      values.push_back(scale * static_cast<double>(column->values[i]));
  return values.empty() ? kNaN : median(std::move(values));
}

double first_known(double one, double other) { return std::isnan(one) ? other : one; }

double share_of(const std::vector<Throttle>& list, const std::string& reason) {
  const auto found = std::ranges::find(list, reason, &Throttle::reason);
  return found == list.end() ? 0 : found->share;
}

// What telemetry shows at a change of speed `after` seconds before its end.
std::string cause_of(const Telemetry& telemetry, double after, double change) {
  constexpr double kPart = 1.0 / 3;   // fraction of the change that the clock must explain
  constexpr double kCommoner = 0.25;  // how much more of the time a reason must apply
  if (telemetry.seconds.size() < 2) return "";
  const double end = telemetry.seconds.back(), at = end - after;
  if (!(at > 0) || !(change > 0)) return "";
  std::string text;
  const auto say = [&](const std::string& words) { text += (text.empty() ? "" : ", ") + words; };
  const double before_mhz = sensor(telemetry, "gpu_sm_clock_mhz", 1, 0, at);
  const double after_mhz = sensor(telemetry, "gpu_sm_clock_mhz", 1, at);
  if (before_mhz > 0 && after_mhz > 0 && before_mhz / after_mhz - 1 >= kPart * change)
    say(fmt::format("the clock fell from {:.0f} to {:.0f} MHz", before_mhz, after_mhz));
  const std::vector<Throttle> earlier = throttle_of(telemetry, 0, at);
  for (const Throttle& entry : throttle_of(telemetry, at, end))
    if (entry.share - share_of(earlier, entry.reason) >= kCommoner) say(words_of(entry.reason));
  return text;
}

Pairs settings_of(const Run& run) {
  const metrics::RunInfo& info = run.info;
  Pairs settings;
  for (const WorkFact& fact : work_of(run)) settings.emplace_back(fact.name, fact.value);
  if (!settings.empty())
    settings.insert(settings.end(), {{"optimizer", info.optimizer},
                                     {"device_kind", info.device},
                                     {"version", fmt::format("{} ({})", info.version, info.commit)}});
  for (const auto& [key, value] : run.options)
    if (key == "device.deterministic" || key == "device.no_fuse" || key == "device.recompute")
      settings.emplace_back(key.substr(key.find('.') + 1), value);
  return settings;
}

DeviceRun times_of(const Run& run) {
  const std::vector<double> times = step_seconds(run);
  if (times.empty())
    throw DataError("{}: only the first step, which is warm-up: nothing to measure", run.folder.string());
  const Summary summary = redline::summarize(times);
  DeviceRun result;
  result.run = run.name;
  result.settings = settings_of(run);
  result.mean = summary.mean;
  result.median = summary.median;
  result.min = summary.min;
  result.max = summary.max;
  result.deviation = times.size() > 1 ? summary.deviation : kNaN;
  result.change_at = result.change = kNaN;
  result.history = speed_history(times);
  return result;
}

}  // namespace

std::vector<DeviceRun> device_runs(const Run& run) {
  const DeviceRun times = times_of(run);
  std::map<std::string, DeviceRun> by_device;  // ranks that share a device count once
  const auto add = [&](const std::string& host, const std::string& address, const Telemetry& telemetry) {
    DeviceRun result = times;
    result.node = host.empty() ? "unknown" : host;
    result.device = result.node + "/" + (address.empty() ? "cpu" : address);
    const auto of = [&](const char* name, double scale) { return sensor(telemetry, name, scale); };
    result.clock_mhz = first_known(of("gpu_sm_clock_mhz", 1), of("cpu_clock_mhz", 1));
    result.memory_clock_mhz = of("gpu_memory_clock_mhz", 1);
    result.temperature_c = first_known(of("gpu_temperature_c", 1), of("cpu_temperature_c", 1));
    result.power_w = first_known(of("gpu_power_mw", 1e-3), of("cpu_power_mw", 1e-3));
    if (!telemetry.seconds.empty()) result.throttle = throttle_of(telemetry, 0, telemetry.seconds.back());
    if (result.history && result.history->candidate) {
      const SpeedChange& change = *result.history->candidate;
      const std::vector<double> all = step_seconds(run);
      const double after =
          std::accumulate(all.begin() + static_cast<std::ptrdiff_t>(change.at), all.end(), 0.0);
      result.cause = cause_of(telemetry, after, change.change());
    }
    by_device.emplace(result.device, result);
  };
  for (const Telemetry& telemetry : run.telemetry) {
    const bool known = !telemetry.host.empty();
    add(known ? telemetry.host : run.fact("hostname"), known ? telemetry.device : run.fact("device_address"),
        telemetry);
  }
  if (by_device.empty()) add(run.fact("hostname"), run.fact("device_address"), {});
  std::vector<DeviceRun> list;
  for (auto& [device, result] : by_device) {
    result.together = static_cast<double>(by_device.size());
    list.push_back(std::move(result));
  }
  return list;
}

std::vector<std::string> assign_cabinets(std::vector<DeviceRun>& runs, const std::string& pattern) {
  std::set<std::string> without;
  try {
    const std::regex expression(pattern);
    for (DeviceRun& run : runs) {
      std::smatch found;
      if (run.node.size() <= kLongestHost && std::regex_search(run.node, found, expression)) {
        run.cabinet = found[found.size() > 1 ? 1 : 0].str();
      } else {
        run.cabinet.clear();
        without.insert(run.node);
      }
    }
  } catch (const std::regex_error& error) {
    throw UsageError("--cabinet '{}' is not a regular expression: {}", pattern, error.what());
  }
  return {without.begin(), without.end()};
}

}  // namespace redline::report
