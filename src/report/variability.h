// How much devices of one kind differ, by the method of the SC22 study of GPU variability (iteration times of
// runs of one measurement on many devices, divided by their median; the distance between the whiskers of a
// box plot over the median; what goes along with being slow), and which of them stand out: tests that flag
// anything in at most 5% of studies in which nothing is there to be found.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/statistics.h"
#include "report/change_point.h"
#include "report/run.h"
#include "report/throttle.h"

namespace redline::report {

// One run on one device. What is not known is NaN or empty.
struct DeviceRun {
  std::string run, device, node, cabinet;
  Pairs settings;  // what must be alike in all runs of a study: "model", "resnet50"
  double mean = 0, median = 0, min = 0, max = 0;  // seconds of an iteration, the first left out
  double deviation = 0;                           // standard deviation of its iterations, seconds
  double clock_mhz = 0, memory_clock_mhz = 0, temperature_c = 0, power_w = 0;  // medians while it ran
  std::vector<Throttle> throttle;
  double together = 1;  // devices that ran it together, whose times are one
  // A change of speed within the run that analyze() found, or that a table tells: the part of the iterations
  // before it, and by how much their time changed. `cause`: what telemetry saw come with it.
  double change_at = 0, change = 0;
  std::string cause;
  std::optional<SpeedHistory> history;  // what a change is looked for in; none in tables
  // By analyze():
  double normalized = 0;  // median / the median over all devices
  std::string group;      // what its device is called among the groups
};

// A device, node or cabinet: medians over its runs.
struct Group {
  std::string name, node, cabinet;  // name: with its node or cabinet before it where it is not the only one
  std::size_t runs = 0;
  double median = 0, normalized = 0;
  double run_deviation = 0;        // standard deviation of its runs' normalised times; NaN for one run
  double iteration_deviation = 0;  // of iterations within its runs, as a part of the median; NaN: not known
  double clock_mhz = 0, memory_clock_mhz = 0, temperature_c = 0, power_w = 0;
  std::vector<Throttle> throttle;  // the largest share in any of its runs
  Whiskers box;                    // of its runs' normalised times
  std::size_t outlier_runs = 0;    // of its runs, outside the whiskers of all runs
  std::size_t changes = 0;         // of its runs, in which the speed changed
  double p_value = 1;              // that chance makes it differ so, among all of its kind
  bool outlier = false;            // it stands out among its kind
  // Of a device. Speed relative to the median device, 1.05 is 5% faster, with all changes counted in.
  double score = 0;
  std::string kind;  // normal, slow, fast, throttled, unstable; unknown: too few devices to tell
  std::string why;   // for people; empty for normal
};

// Groups of one kind and the whiskers of their normalised medians.
struct Level {
  std::vector<Group> groups;  // slowest first
  Whiskers box;
  bool tested =
      false;  // whether there are enough to tell which stands out, and more than the level below has
};

struct Correlation {
  std::string with;  // "clock_mhz"
  std::size_t pairs = 0;
  double pearson = 0, spearman = 0;  // of the run's median time; NaN when a side does not vary
  ConfidenceInterval interval;       // of Pearson's
};

// Standard deviations as parts of the median; NaN where there are too few.
struct Deviations {
  double iterations = 0;  // of iterations within a run: the root of the mean variance
  double runs = 0;        // of runs of one device: the same
  double devices = 0;     // of devices' medians
};

// A setting that is not the same in all runs: how many have which value.
struct Unlike {
  std::string name;
  std::map<std::string, std::size_t> values;
};

struct Variability {
  std::vector<DeviceRun> runs;
  Whiskers box;                    // of the runs' normalised times
  Level devices, nodes, cabinets;  // cabinets are empty where none is named
  Deviations deviations;
  std::vector<Correlation> correlations;
  std::vector<std::string> problems;  // what was left out or cannot be told, for people
};

// The run of a folder, once for each of its devices: the host's name and the device's address there. Devices
// of one run wait for each other, so their times are the same; clocks, temperatures and power are their own.
// Throws DataError for a run with fewer than two steps.
std::vector<DeviceRun> device_runs(const Run& run);

// Puts nodes into cabinets: a regular expression whose first group, or else all that it matches, is found in
// the node's name. Gives the names of nodes in which it finds nothing. Throws UsageError when it is not a
// regular expression.
std::vector<std::string> assign_cabinets(std::vector<DeviceRun>& runs, const std::string& pattern);

// Where other people's tables have what this wants: the name here, and there "column" or "column:unit". Names
// are run, device, node, cabinet, duration (or mean, median, min, max), deviation, clock, memory_clock,
// temperature, power; units s, ms, us, W, mW, MHz, GHz, C.
using ColumnMap = std::map<std::string, std::string>;
// "duration=Iter Time:ms,device=GPU". Throws UsageError for an unknown name or unit.
ColumnMap parse_map(const std::string& text);

// A row each. all_data.csv of this program needs no map. A row without device or time is left out, and a cell
// that should be a number and is not counts as unknown: `problems` says how many, and where the first are.
// Throws UsageError when a column that is needed or named is not there, DataError when no row can be used.
std::vector<DeviceRun> read_device_runs(const std::filesystem::path& csv, const ColumnMap& map,
                                        std::vector<std::string>& problems);

// What was set differently; empty when all runs are alike. A run that does not tell is like all others.
std::vector<Unlike> unlike_settings(const std::vector<DeviceRun>& runs);
std::string text_of(const Unlike& unlike);  // "model: resnet18 (3 runs), resnet50 (1 run)"

// Throws UsageError for no runs at all.
Variability analyze(std::vector<DeviceRun> runs);

// {"schema": "redline.variability", "version": 2, "program", "generated", "problems": [text],
//  "box": BOX, "deviations": {"iterations", "runs", "devices"},
//  "devices": LEVEL, "nodes": LEVEL, "cabinets": LEVEL, "correlations": [...], "runs": [RUN]}, where
// BOX is {"q1", "median", "q3", "low", "high", "variability"}, of normalised times;
// LEVEL is {"tested": bool, "box": BOX, "groups": [GROUP]}, slowest first;
// GROUP is {"name", "node", "cabinet", "runs", "median_s", "normalized", "run_deviation",
//   "iteration_deviation", "clock_mhz", "memory_clock_mhz", "temperature_c", "power_w", "box", "outlier",
//   "p_value", "outlier_runs", "changes", "throttle": [{"reason": "power cap", "share": 0..1}]}, and for a
//   device "score" (speed relative to the median device), "class" and "why";
// RUN is {"run", "device" (its name in "devices"), "node", "cabinet", times in "..._s", clocks and so on,
//   "normalized", "outlier" (of the box plot of all runs), "throttle"}, and where its speed changed "change":
//   {"at": 0..1, "by": 0.12, "cause": text, "over_time": [normalised medians of equal stretches of
//   iterations, in order]}.
// What is not known is null.
std::string to_json(const Variability& variability);
std::string all_data_csv(const Variability& variability);
std::string aggregated_data_csv(const Variability& variability);  // a row a device
// For schedulers: device, node, cabinet, runs, score, class, why.
std::string scores_csv(const Variability& variability);
std::string terminal_text(const Variability& variability);

}  // namespace redline::report
