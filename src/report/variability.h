// How much devices of one kind differ, by the method of the SC22 study of GPU variability: iteration times of
// runs of one measurement on many devices, normalised by their median; the distance between the whiskers of a
// box plot over the median; what lies outside the whiskers; and what goes along with being slow.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/statistics.h"
#include "report/run.h"

namespace redline::report {

// One run on one device. What is not known is NaN.
struct DeviceRun {
  std::string run, device, node, cabinet;
  double mean = 0, median = 0, min = 0, max = 0;  // seconds of an iteration, the first left out
  double clock_mhz = 0, memory_clock_mhz = 0, temperature_c = 0, power_w = 0;  // medians while it ran
  double normalized = 0;  // median / the median over all devices
};

// A device, node or cabinet: medians over its runs.
struct Group {
  std::string name, node, cabinet;  // of a device, where it is
  std::size_t runs = 0;
  double median = 0, normalized = 0;
  double clock_mhz = 0, memory_clock_mhz = 0, temperature_c = 0, power_w = 0;
  Whiskers box;                  // of its runs' normalised times
  std::size_t outlier_runs = 0;  // of its runs, outside the whiskers of all runs
  bool outlier = false;          // its median is outside the whiskers of its kind
};

// Groups of one kind and the whiskers of their normalised medians.
struct Level {
  std::vector<Group> groups;  // slowest first
  Whiskers box;
};

struct Correlation {
  std::string with;  // "clock_mhz"
  std::size_t pairs = 0;
  double pearson = 0, spearman = 0;  // of the run's median time; NaN when a side does not vary
  ConfidenceInterval interval;       // of Pearson's
};

struct Variability {
  std::vector<DeviceRun> runs;
  Whiskers box;                    // of the runs' normalised times
  Level devices, nodes, cabinets;  // cabinets are empty where none is named
  std::vector<Correlation> correlations;
  std::vector<std::string> problems;  // what was left out, for people
};

// The run of a folder, once for each of its devices: the host's name and the device's address there. Devices
// of one run wait for each other, so their times are the same; clocks, temperatures and power are their own.
// Throws DataError for a run with fewer than two steps. `cabinet` is a regular expression whose first group
// is found in the host's name; empty: none.
std::vector<DeviceRun> device_runs(const Run& run, const std::string& cabinet);

// Where other people's tables have what this wants: the name here, and there "column" or "column:unit". Names
// are run, device, node, cabinet, duration (or mean, median, min, max), clock, memory_clock, temperature,
// power; units s, ms, us, W, mW, MHz, GHz.
using ColumnMap = std::map<std::string, std::string>;
// "duration=Iter Time:ms,device=GPU". Throws UsageError for an unknown name or unit.
ColumnMap parse_map(const std::string& text);

// A row each. all_data.csv of this program needs no map. Throws UsageError when a column that is needed or
// named is not there, DataError naming file and line for a cell that is no number.
std::vector<DeviceRun> read_device_runs(const std::filesystem::path& csv, const ColumnMap& map);

// Throws UsageError for no runs at all.
Variability analyze(std::vector<DeviceRun> runs);

std::string to_json(const Variability& variability);
std::string all_data_csv(const Variability& variability);
std::string aggregated_data_csv(const Variability& variability);  // a row a device
std::string terminal_text(const Variability& variability);

}  // namespace redline::report
