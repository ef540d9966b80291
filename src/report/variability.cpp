#include "report/variability.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <regex>

#include <fmt/format.h>

#include "base/error.h"

namespace redline::report {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kLongestHost = 253;  // of a name in DNS; a regular expression needs a bound

// Medians while training ran, of what telemetry has.
double sensor(const Telemetry& telemetry, std::string_view name, double scale) {
  const Telemetry::Column* column = telemetry.column(name);
  std::vector<double> values;
  if (column != nullptr) {
    for (float value : column->values)
      if (std::isfinite(value)) values.push_back(scale * static_cast<double>(value));
  }
  return values.empty() ? kNaN : median(std::move(values));
}

double first_known(double one, double other) { return std::isnan(one) ? other : one; }

std::string cabinet_of(const std::string& host, const std::string& pattern) {
  if (pattern.empty() || host.size() > kLongestHost) return "";
  std::smatch found;
  try {
    if (!std::regex_search(host, found, std::regex(pattern))) return "";
  } catch (const std::regex_error& error) {
    throw UsageError("--cabinet '{}' is no regular expression: {}", pattern, error.what());
  }
  return found[found.size() > 1 ? 1 : 0].str();
}

double median_of_known(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  return values.empty() ? kNaN : median(std::move(values));
}

std::vector<double> column_of(const std::vector<const DeviceRun*>& runs, double DeviceRun::*field) {
  std::vector<double> values;
  for (const DeviceRun* run : runs) values.push_back(run->*field);
  return values;
}

// Groups runs by a name, and finds those that stand out among their kind.
Level group(const std::vector<DeviceRun>& runs, const Whiskers& all,
            const std::function<std::string(const DeviceRun&)>& name_of_run) {
  std::map<std::string, std::vector<const DeviceRun*>> members;
  for (const DeviceRun& run : runs)
    if (const std::string name = name_of_run(run); !name.empty()) members[name].push_back(&run);
  Level level;
  std::vector<double> medians;
  for (const auto& [name, list] : members) {
    Group made;
    made.name = name;
    made.node = list.front()->node;
    made.cabinet = list.front()->cabinet;
    made.runs = list.size();
    made.median = median(column_of(list, &DeviceRun::median));
    made.normalized = median(column_of(list, &DeviceRun::normalized));
    made.clock_mhz = median_of_known(column_of(list, &DeviceRun::clock_mhz));
    made.memory_clock_mhz = median_of_known(column_of(list, &DeviceRun::memory_clock_mhz));
    made.temperature_c = median_of_known(column_of(list, &DeviceRun::temperature_c));
    made.power_w = median_of_known(column_of(list, &DeviceRun::power_w));
    made.box = whiskers(column_of(list, &DeviceRun::normalized));
    made.outlier_runs = outliers(column_of(list, &DeviceRun::normalized), all).size();
    medians.push_back(made.normalized);
    level.groups.push_back(std::move(made));
  }
  if (medians.empty()) return level;
  level.box = whiskers(medians);
  for (Group& made : level.groups) made.outlier = !level.box.holds(made.normalized);
  std::ranges::stable_sort(level.groups, std::ranges::greater{}, &Group::normalized);
  return level;
}

Correlation correlate(const std::vector<DeviceRun>& runs, const char* name, double DeviceRun::*field) {
  std::vector<double> times, values;
  for (const DeviceRun& run : runs) {
    if (std::isnan(run.*field)) continue;
    times.push_back(run.median);
    values.push_back(run.*field);
  }
  Correlation result;
  result.with = name;
  result.pairs = times.size();
  result.pearson = pearson(times, values);
  result.spearman = spearman(times, values);
  result.interval = correlation_interval(result.pearson, result.pairs);
  return result;
}

}  // namespace

std::vector<DeviceRun> device_runs(const Run& run, const std::string& cabinet) {
  std::vector<double> times = step_seconds(run);
  if (times.empty())
    throw DataError("{}: no step but the first, which warms up: nothing to measure", run.folder.string());
  const Summary summary = summarize(std::move(times));
  std::map<std::string, DeviceRun> by_device;  // ranks that share one are one
  const auto add = [&](const std::string& host, const std::string& address, const Telemetry& telemetry) {
    DeviceRun result;
    result.run = run.name;
    result.node = host.empty() ? "unknown" : host;
    result.device = result.node + "/" + (address.empty() ? "cpu" : address);
    result.cabinet = cabinet_of(result.node, cabinet);
    result.mean = summary.mean;
    result.median = summary.median;
    result.min = summary.min;
    result.max = summary.max;
    const auto of = [&](const char* name, double scale) { return sensor(telemetry, name, scale); };
    result.clock_mhz = first_known(of("gpu_sm_clock_mhz", 1), of("cpu_clock_mhz", 1));
    result.memory_clock_mhz = of("gpu_memory_clock_mhz", 1);
    result.temperature_c = first_known(of("gpu_temperature_c", 1), of("cpu_temperature_c", 1));
    result.power_w = first_known(of("gpu_power_mw", 1e-3), of("cpu_power_mw", 1e-3));
    by_device.emplace(result.device, result);
  };
  for (const Telemetry& telemetry : run.telemetry) {
    const bool named = !telemetry.host.empty();
    add(named ? telemetry.host : run.fact("hostname"), named ? telemetry.device : run.fact("device_address"),
        telemetry);
  }
  if (by_device.empty()) add(run.fact("hostname"), run.fact("device_address"), {});
  std::vector<DeviceRun> list;
  for (auto& [device, result] : by_device) list.push_back(std::move(result));
  return list;
}

Variability analyze(std::vector<DeviceRun> runs) {
  if (runs.empty()) throw UsageError("there are no runs to compare");
  Variability result;
  result.runs = std::move(runs);
  // The median over devices, so that one that ran more often counts no more than the others.
  std::map<std::string, std::vector<double>> of_device;
  for (const DeviceRun& run : result.runs) of_device[run.device].push_back(run.median);
  std::vector<double> medians;
  for (const auto& [device, times] : of_device) medians.push_back(median(times));
  const double middle = median(medians);
  std::vector<double> normalized;
  for (DeviceRun& run : result.runs) {
    run.normalized = run.median / middle;
    normalized.push_back(run.normalized);
  }
  result.box = whiskers(normalized);
  result.devices = group(result.runs, result.box, [](const DeviceRun& run) { return run.device; });
  result.nodes = group(result.runs, result.box, [](const DeviceRun& run) { return run.node; });
  result.cabinets = group(result.runs, result.box, [](const DeviceRun& run) { return run.cabinet; });
  result.correlations = {correlate(result.runs, "clock_mhz", &DeviceRun::clock_mhz),
                         correlate(result.runs, "memory_clock_mhz", &DeviceRun::memory_clock_mhz),
                         correlate(result.runs, "temperature_c", &DeviceRun::temperature_c),
                         correlate(result.runs, "power_w", &DeviceRun::power_w)};
  std::erase_if(result.correlations, [](const Correlation& entry) { return entry.pairs == 0; });
  if (result.devices.groups.size() < 4)
    result.problems.push_back(fmt::format("with {} device{} nothing can be said about which stands out",
                                          result.devices.groups.size(),
                                          result.devices.groups.size() == 1 ? "" : "s"));
  return result;
}

}  // namespace redline::report
