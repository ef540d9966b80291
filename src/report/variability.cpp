#include "report/variability.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/statistics.h"
#include "report/outlying.h"
#include "report/settings.h"

namespace redline::report {
namespace {

// False-alarm rates for devices, nodes, cabinets and changes of speed: 5% together.
constexpr double kDeviceChance = 0.02, kNodeChance = 0.01, kCabinetChance = 0.005, kChangeChance = 0.015;
constexpr double kLeastDifference = 0.005;  // from the median: less is not worth acting on
constexpr double kHardShare = 0.05;         // fraction of the time from which a throttle reason counts

using Members = std::map<std::string, std::vector<const DeviceRun*>>;
using NameOf = std::function<std::string(const DeviceRun&)>;

// Device names are often unique only within a node, and node names within a cabinet.
constexpr char kWithin = '\x1f';
std::string node_key(const DeviceRun& run) { return run.cabinet + kWithin + run.node; }
std::string device_key(const DeviceRun& run) { return node_key(run) + kWithin + run.device; }
std::string cabinet_key(const DeviceRun& run) { return run.cabinet; }

// Devices that always ran together share their times and count once.
std::string unit_key(const std::vector<const DeviceRun*>& runs) {
  std::set<std::string> names;
  for (const DeviceRun* run : runs) {
    if (!(run->together > 1)) return device_key(*run);
    names.insert(run->run);
  }
  return fmt::format("together:{}", fmt::join(names, std::string(1, kWithin)));
}

Members members_by(const std::vector<DeviceRun>& runs, const NameOf& name_of_run) {
  Members members;
  for (const DeviceRun& run : runs)
    if (const std::string name = name_of_run(run); !name.empty()) members[name].push_back(&run);
  return members;
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

bool changed(const DeviceRun& run) { return !std::isnan(run.change); }

// The time of an iteration over the whole run; its median would be that of the longer part alone.
double whole_time(const DeviceRun& run) {
  if (!changed(run)) return run.median;
  const double before = run.change_at > 0.5 ? run.median : run.median / (1 + run.change);
  return before * (run.change_at + (1 - run.change_at) * (1 + run.change));
}

double root_mean_square(const std::vector<double>& values) {
  if (values.empty()) return kNaN;
  double sum = 0;
  for (double value : values) sum += value * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

double iteration_deviation(const std::vector<const DeviceRun*>& runs) {
  std::vector<double> parts;
  for (const DeviceRun* run : runs)
    if (!std::isnan(run->deviation)) parts.push_back(run->deviation / run->median);
  return root_mean_square(parts);
}

double run_deviation(const std::vector<const DeviceRun*>& runs) {
  return runs.size() < 2 ? kNaN : standard_deviation(column_of(runs, &DeviceRun::normalized));
}

std::vector<Throttle> throttle_of(const std::vector<const DeviceRun*>& runs) {
  std::vector<Throttle> all;
  for (const DeviceRun* run : runs) {
    for (const Throttle& entry : run->throttle) {
      const auto known = std::ranges::find(all, entry.reason, &Throttle::reason);
      if (known == all.end()) {
        all.push_back(entry);
      } else {
        known->share = std::max(known->share, entry.share);
      }
    }
  }
  return all;
}

Group describe(const std::vector<const DeviceRun*>& runs, const Whiskers& all) {
  Group made;
  made.node = runs.front()->node;
  made.cabinet = runs.front()->cabinet;
  made.runs = runs.size();
  made.median = median(column_of(runs, &DeviceRun::median));
  made.normalized = median(column_of(runs, &DeviceRun::normalized));
  made.run_deviation = run_deviation(runs);
  made.iteration_deviation = iteration_deviation(runs);
  made.clock_mhz = median_of_known(column_of(runs, &DeviceRun::clock_mhz));
  made.memory_clock_mhz = median_of_known(column_of(runs, &DeviceRun::memory_clock_mhz));
  made.temperature_c = median_of_known(column_of(runs, &DeviceRun::temperature_c));
  made.power_w = median_of_known(column_of(runs, &DeviceRun::power_w));
  made.throttle = throttle_of(runs);
  made.box = whiskers(column_of(runs, &DeviceRun::normalized));
  made.outlier_runs = outliers(column_of(runs, &DeviceRun::normalized), all).size();
  made.changes = static_cast<std::size_t>(
      std::ranges::count_if(runs, [](const DeviceRun* run) { return changed(*run); }));
  return made;
}

// Names each group by the shortest of its names that is unique. `names` are in order of length.
void name_groups(std::vector<Group>& groups, const std::vector<std::vector<std::string>>& names) {
  std::map<std::string, std::size_t> seen;
  for (const std::vector<std::string>& list : names)
    for (const std::string& name : std::set<std::string>(list.begin(), list.end())) ++seen[name];
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto unique =
        std::ranges::find_if(names[i], [&](const std::string& name) { return seen[name] == 1; });
    groups[i].name = unique == names[i].end() ? names[i].back() : *unique;
  }
}

std::string within(const std::string& outer, const std::string& inner) {
  return outer.empty() ? inner : outer + "/" + inner;
}

// The groups of a level, ordered by key.
Level make_level(const Members& members, const Whiskers& all,
                 const std::function<std::vector<std::string>(const DeviceRun&)>& names_of) {
  Level level;
  std::vector<std::vector<std::string>> names;
  std::vector<double> medians;
  for (const auto& [key, runs] : members) {
    level.groups.push_back(describe(runs, all));
    names.push_back(names_of(*runs.front()));
    medians.push_back(level.groups.back().normalized);
  }
  name_groups(level.groups, names);
  if (!medians.empty()) level.box = whiskers(medians);
  return level;
}

// Tests the groups of a level by the logs of their values; both are ordered by key.
void test_level(Level& level, const std::vector<std::vector<double>>& values, double chance) {
  const std::vector<double> p_values = standing_out(values);
  for (std::size_t i = 0; i < level.groups.size(); ++i) {
    Group& group = level.groups[i];
    group.p_value = p_values[i];
    group.outlier = p_values[i] <= chance && std::abs(group.normalized - 1) >= kLeastDifference;
  }
  level.tested = true;
}

std::vector<double> logarithms(const std::vector<const DeviceRun*>& runs) {
  std::vector<double> values = column_of(runs, &DeviceRun::normalized);
  for (double& value : values) value = std::log(value);
  return values;
}

// Devices by their runs. Devices that always ran together are tested once and stand out together.
void test_devices(Level& level, const Members& devices) {
  std::map<std::string, std::size_t> place_of_unit;
  std::vector<std::vector<double>> values;
  std::vector<std::size_t> place;  // index of each device's unit
  for (const auto& [key, runs] : devices) {
    const auto [unit, is_new] = place_of_unit.emplace(unit_key(runs), values.size());
    if (is_new) values.push_back(logarithms(runs));
    place.push_back(unit->second);
  }
  if (values.size() < kFewestGroups) return;
  Level units;
  units.groups.resize(values.size());
  for (std::size_t i = 0; i < place.size(); ++i)
    units.groups[place[i]].normalized = level.groups[i].normalized;
  test_level(units, values, kDeviceChance);
  for (std::size_t i = 0; i < place.size(); ++i) {
    level.groups[i].p_value = units.groups[place[i]].p_value;
    level.groups[i].outlier = units.groups[place[i]].outlier;
  }
  level.tested = true;
}

// Nodes by their devices, cabinets by their nodes: `part_of` names the part of the group that a run belongs
// to. If every group has a single part, the level below was the same test.
void test_parts(Level& level, const Members& groups, const NameOf& part_of, double chance) {
  std::vector<std::vector<double>> values;
  bool more = false;
  for (const auto& [key, runs] : groups) {
    Members parts;
    for (const DeviceRun* run : runs) parts[part_of(*run)].push_back(run);
    std::vector<double>& list = values.emplace_back();
    for (const auto& [name, of_part] : parts) list.push_back(median(logarithms(of_part)));
    more |= list.size() > 1;
  }
  if (more && values.size() >= kFewestGroups) test_level(level, values, chance);
}

// A run's candidate for a change, which other runs may share.
bool changes_alike(const SpeedHistory& one, const SpeedHistory& other) {
  constexpr double kApart = 0.1;  // of the run
  if (!one.candidate || !other.candidate) return false;
  const auto place = [](const SpeedHistory& history) {
    const double at = static_cast<double>(history.candidate->at);
    return at / static_cast<double>(std::max<std::size_t>(history.steps, 1));
  };
  return (one.candidate->change() > 0) == (other.candidate->change() > 0) &&
         std::abs(place(one) - place(other)) <= kApart;
}

// Whether most runs on other devices change there too: then the workload changes, not the device.
bool is_common(const std::vector<DeviceRun>& runs, const DeviceRun& run) {
  constexpr std::size_t kFewest = 3;
  std::size_t others = 0, alike = 0;
  for (const DeviceRun& other : runs) {
    if (!other.history || device_key(other) == device_key(run)) continue;
    ++others;
    alike += changes_alike(*run.history, *other.history) ? 1 : 0;
  }
  return others >= kFewest && 2 * alike > others;
}

// Fills in where each run's speed changed. Returns the number of runs that changed where most others did.
std::size_t find_changes(std::vector<DeviceRun>& runs) {
  std::vector<double> usual;
  std::size_t jumps = 0, common = 0;
  std::set<std::string> counted;
  for (const DeviceRun& run : runs) {
    if (!run.history) continue;
    usual.push_back(run.history->usual_jump);
    jumps += run.history->stretches.size();
    counted.insert(run.together > 1 ? run.run : run.run + kWithin + device_key(run));
  }
  if (usual.empty()) return 0;
  const double typical = median(usual);
  for (DeviceRun& run : runs) {
    if (!run.history || !run.history->candidate) continue;
    const SpeedChange& candidate = *run.history->candidate;
    const double p_value = chance_of(candidate, std::max(typical, run.history->usual_jump), jumps);
    if (p_value * static_cast<double>(counted.size()) > kChangeChance) continue;
    if (is_common(runs, run)) {
      ++common;
      continue;
    }
    run.change_at = static_cast<double>(candidate.at) / static_cast<double>(run.history->steps);
    run.change = candidate.change();
  }
  return common;
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

std::string percent(double part) { return fmt::format("{:.1f}%", 100 * part); }

// Reasons that a healthy device never shows. Many devices run at their power cap all the time.
bool is_hard(const Throttle& entry) {
  return entry.share >= kHardShare && entry.reason != "sw_power_cap" && entry.reason != "sync_boost";
}

// A device's class for schedulers: changes within its runs come first, then how slow it is.
void classify(Group& device, const std::vector<const DeviceRun*>& runs, const Group* node,
              const Group* cabinet) {
  const auto held = std::ranges::find_if(device.throttle, is_hard);
  for (const DeviceRun* run : runs) {
    if (!changed(*run)) continue;
    const bool throttled = run->change > 0 && (!run->cause.empty() || held != device.throttle.end());
    if (device.kind == "throttled" || (!device.kind.empty() && !throttled)) continue;
    device.kind = throttled ? "throttled" : "unstable";
    device.why = fmt::format("{} {} after {:.0f}% of {}{}", percent(std::abs(run->change)),
                             run->change > 0 ? "slower" : "faster", 100 * run->change_at, run->run,
                             run->cause.empty() ? "" : ": " + run->cause);
  }
  if (!device.kind.empty()) return;
  const auto follows = [&](const Group* holder) {  // its node or cabinet stands out in the same direction
    return holder != nullptr && holder->outlier && (device.normalized - 1) * (holder->normalized - 1) > 0 &&
           std::abs(device.normalized - 1) >= std::abs(holder->normalized - 1) / 2;
  };
  const Group* holder = follows(cabinet) ? cabinet : follows(node) ? node : nullptr;
  if (device.outlier || holder != nullptr) {
    const bool slow = device.normalized > 1;
    device.kind = slow ? "slow" : "fast";
    device.why = fmt::format("{} {} than the median", percent(std::abs(device.normalized - 1)),
                             slow ? "slower" : "faster");
    if (holder != nullptr)
      device.why += fmt::format(", as {} {} is", holder == cabinet ? "cabinet" : "node", holder->name);
    if (slow && held != device.throttle.end()) {
      device.kind = "throttled";
      device.why += fmt::format(", {} in {} of the time", words_of(held->reason), percent(held->share));
    }
  }
}

// Scores and classes of devices, ordered by key.
void judge_devices(Variability& result, const Members& devices, const Members& nodes,
                   const Members& cabinets) {
  const auto holder = [](Level& level, const Members& members, const std::string& key) -> const Group* {
    const auto found = members.find(key);
    return found == members.end()
               ? nullptr
               : &level.groups[static_cast<std::size_t>(std::distance(members.begin(), found))];
  };
  std::vector<double> times;
  for (const auto& [key, runs] : devices) {
    std::vector<double> of_runs;
    for (const DeviceRun* run : runs) of_runs.push_back(whole_time(*run));
    times.push_back(median(std::move(of_runs)));
  }
  const double middle = median(times);
  std::size_t place = 0;
  for (const auto& [key, runs] : devices) {
    Group& device = result.devices.groups[place];
    device.score = middle / times[place++];
    classify(device, runs, holder(result.nodes, nodes, node_key(*runs.front())),
             holder(result.cabinets, cabinets, cabinet_key(*runs.front())));
    if (device.kind.empty()) device.kind = result.devices.tested ? "normal" : "unknown";
  }
}

Deviations deviations_of(const Variability& study, const Members& devices) {
  Deviations result;
  std::vector<const DeviceRun*> all;
  for (const DeviceRun& run : study.runs) all.push_back(&run);
  result.iterations = iteration_deviation(all);
  double squares = 0, degrees = 0;
  std::vector<double> medians;
  for (const auto& [key, runs] : devices) {
    medians.push_back(median(column_of(runs, &DeviceRun::normalized)));
    if (runs.size() < 2) continue;
    const double weight = static_cast<double>(runs.size() - 1), deviation = run_deviation(runs);
    squares += weight * deviation * deviation;
    degrees += weight;
  }
  result.runs = degrees > 0 ? std::sqrt(squares / degrees) : kNaN;
  result.devices = medians.size() > 1 ? standard_deviation(medians) : kNaN;
  return result;
}

// What the study cannot tell.
void list_limits(Variability& result, std::size_t common) {
  const std::size_t devices = result.devices.groups.size();
  if (!result.devices.tested) {
    result.problems.push_back(
        fmt::format("{} device{}: too few to tell which stands out; it takes {} that ran separately", devices,
                    devices == 1 ? "" : "s", kFewestGroups));
  } else if (std::isnan(result.deviations.runs)) {
    result.problems.emplace_back(
        "every device ran once: a slow run cannot be told from a slow device, so only extreme ones are "
        "named; measure each at least three times");
  }
  if (common > 0)
    result.problems.push_back(fmt::format(
        "{} run{} changed speed where most others did too: the cause is the workload, not a device", common,
        common == 1 ? "" : "s"));
}

}  // namespace

std::vector<Unlike> unlike_settings(const std::vector<DeviceRun>& runs) {
  SettingTable table(runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const auto& [name, value] : runs[i].settings) table.put(i, name, value);
  std::vector<Unlike> all;
  for (const Setting& setting : table.settings()) {
    Unlike entry{setting.name, {}};
    for (const std::string& value : setting.values)
      if (!value.empty()) ++entry.values[value];
    if (entry.values.size() > 1) all.push_back(std::move(entry));
  }
  return all;
}

std::string text_of(const Unlike& unlike) {
  constexpr std::size_t kMost = 6;
  std::vector<std::string> parts;
  for (const auto& [value, count] : unlike.values) {
    if (parts.size() == kMost) {
      parts.push_back(fmt::format("and {} more", unlike.values.size() - kMost));
      break;
    }
    parts.push_back(fmt::format("{} ({} run{})", value, count, count == 1 ? "" : "s"));
  }
  return fmt::format("{}: {}", unlike.name, fmt::join(parts, ", "));
}

Variability analyze(std::vector<DeviceRun> runs) {
  if (runs.empty()) throw UsageError("there are no runs to compare");
  Variability result;
  result.runs = std::move(runs);
  const std::size_t common = find_changes(result.runs);
  const Members devices = members_by(result.runs, device_key), nodes = members_by(result.runs, node_key),
                cabinets = members_by(result.runs, cabinet_key);
  // The median over devices, so that one with more runs counts no more than the others.
  std::vector<double> medians, normalized;
  for (const auto& [key, of_device] : devices)
    medians.push_back(median(column_of(of_device, &DeviceRun::median)));
  const double middle = median(medians);
  for (DeviceRun& run : result.runs) normalized.push_back(run.normalized = run.median / middle);
  result.box = whiskers(normalized);
  result.devices = make_level(devices, result.box, [](const DeviceRun& run) {
    const std::string in_node = within(run.node, run.device);
    return std::vector<std::string>{run.device, in_node, within(run.cabinet, in_node)};
  });
  result.nodes = make_level(nodes, result.box, [](const DeviceRun& run) {
    return std::vector<std::string>{run.node, within(run.cabinet, run.node)};
  });
  result.cabinets = make_level(cabinets, result.box,
                               [](const DeviceRun& run) { return std::vector<std::string>{run.cabinet}; });
  std::map<std::string, std::string> units, names;
  for (const auto& [key, of_device] : devices) {
    names[key] = result.devices.groups[units.size()].name;
    units[key] = unit_key(of_device);
  }
  for (DeviceRun& run : result.runs) run.group = names[device_key(run)];
  test_devices(result.devices, devices);
  test_parts(
      result.nodes, nodes, [&](const DeviceRun& run) { return units[device_key(run)]; }, kNodeChance);
  test_parts(result.cabinets, cabinets, node_key, kCabinetChance);
  result.deviations = deviations_of(result, devices);
  judge_devices(result, devices, nodes, cabinets);
  for (Level* level : {&result.devices, &result.nodes, &result.cabinets})
    std::ranges::stable_sort(level->groups, std::ranges::greater{}, &Group::normalized);
  result.correlations = {correlate(result.runs, "clock_mhz", &DeviceRun::clock_mhz),
                         correlate(result.runs, "memory_clock_mhz", &DeviceRun::memory_clock_mhz),
                         correlate(result.runs, "temperature_c", &DeviceRun::temperature_c),
                         correlate(result.runs, "power_w", &DeviceRun::power_w)};
  std::erase_if(result.correlations, [](const Correlation& entry) { return entry.pairs == 0; });
  list_limits(result, common);
  return result;
}

}  // namespace redline::report
