// How much devices of one kind differ, by the method of the SC22 study of GPU variability: run one benchmark
// on many devices, divide its iteration times by their median, take the whisker-to-whisker range of the box
// plot over the median, and find what correlates with being slow. Also which devices stand out, by tests with
// at most 5% false alarms.
#pragma once

#include <cstdint>
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

// One run on one device. Unknown values are NaN or empty.
struct DeviceRun {
  std::string run, device, node, cabinet;
  Pairs settings;  // what must be the same in all runs of a study: "model", "resnet50"
  double mean = 0, median = 0, min = 0, max = 0;  // seconds per iteration, without the first
  double deviation = 0;                           // standard deviation over iterations, seconds
  double clock_mhz = 0, memory_clock_mhz = 0, temperature_c = 0, power_w = 0;  // medians while it ran
  std::vector<Throttle> throttle;
  double together = 1;  // devices that took part in the run and share its times
  // A change of speed within the run, found by analyze() or read from a table: the fraction of iterations
  // before it, and the relative change of their time. `cause` is what telemetry showed at that point.
  double change_at = 0, change = 0;
  std::string cause;
  std::optional<SpeedHistory> history;  // searched for changes; empty for tables
  // Set by analyze():
  double normalized = 0;  // median / the median over all devices
  std::string group;      // the name of its device's group
};

// A device, node or cabinet: medians over its runs.
struct Group {
  std::string name, node, cabinet;  // name: prefixed with node or cabinet where it is not unique
  std::size_t runs = 0;
  double median = 0, normalized = 0;
  double run_deviation = 0;        // standard deviation of its runs' normalised times; NaN for one run
  double iteration_deviation = 0;  // within its runs, as a fraction of the median; NaN if unknown
  double clock_mhz = 0, memory_clock_mhz = 0, temperature_c = 0, power_w = 0;
  std::vector<Throttle> throttle;  // the largest fraction in any of its runs
  Whiskers box;                    // of its runs' normalised times
  std::size_t outlier_runs = 0;    // its runs that lie outside the whiskers of all runs
  std::size_t changes = 0;         // its runs in which the speed changed
  double p_value = 1;              // of differing this much by chance, among all of its kind
  bool outlier = false;            // stands out among its kind
  // For devices. Speed relative to the median device over whole runs: 1.05 is 5% faster.
  double score = 0;
  std::string kind;  // normal, slow, fast, throttled, unstable; unknown: too few devices to tell
  std::string why;   // for people; empty for normal
};

// Groups of one kind and the whiskers of their normalised medians.
struct Level {
  std::vector<Group> groups;  // slowest first
  Whiskers box;
  bool tested = false;  // whether there are enough groups to tell, each with more than one part
};

struct Correlation {
  std::string with;  // "clock_mhz"
  std::size_t pairs = 0;
  double pearson = 0,
         spearman = 0;  // with the run's median time; NaN if either does not vary, or with fewer than 3 pairs
  ConfidenceInterval interval;  // of Pearson's
};

// Standard deviations as fractions of the median; NaN if there are too few values.
struct Deviations {
  double iterations = 0;  // within a run: root of the mean variance
  double runs = 0;        // between runs of one device: root of the mean variance
  double devices = 0;     // between the medians of devices
};

// A setting that differs between runs, and how many runs have each value.
struct Unlike {
  std::string name;
  std::map<std::string, std::size_t> values;
};

struct Variability {
  std::vector<DeviceRun> runs;
  Whiskers box;                    // of the runs' normalised times
  Level devices, nodes, cabinets;  // cabinets are empty if none is named
  Deviations deviations;
  std::vector<Correlation> correlations;
  std::vector<std::string> problems;  // for people: what was left out or cannot be told
};

// A folder's run, once per device (host name and device address). The devices of a run wait for each other,
// so they share its times; each has its own clocks, temperature and power. Throws DataError for a run with
// fewer than two steps.
std::vector<DeviceRun> device_runs(const Run& run);

// Assigns nodes to cabinets. The regular expression's first group, or else its whole match, in a node's name
// is the cabinet. Returns the nodes that do not match. Throws UsageError if it is not a regular expression.
std::vector<std::string> assign_cabinets(std::vector<DeviceRun>& runs, const std::string& pattern);

// Maps our names to the columns of other tables, as "column" or "column:unit". Our names are run, device,
// node, cabinet, duration (or mean, median, min, max), deviation, clock, memory_clock, temperature, power;
// units s, ms, us, W, mW, MHz, GHz, C.
using ColumnMap = std::map<std::string, std::string>;
// "duration=Iter Time:ms,device=GPU". Throws UsageError for an unknown name or unit.
ColumnMap parse_map(const std::string& text);

// One run per row. This program's own all_data.csv needs no map. Rows without device or time are skipped, and
// cells that should be numbers and are not count as unknown; `problems` says how many, and where the first
// are. Throws UsageError if a required or mapped column is missing, DataError if no row can be
// used, or if there are over a million.
std::vector<DeviceRun> read_device_runs(const std::filesystem::path& csv, const ColumnMap& map,
                                        std::vector<std::string>& problems);

// Settings that differ between runs. A run without a setting matches all others.
std::vector<Unlike> unlike_settings(const std::vector<DeviceRun>& runs);
std::string text_of(const Unlike& unlike);  // "model: resnet18 (3 runs), resnet50 (1 run)"

// Throws UsageError if there are no runs.
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
// What is not known is null. "run_count" is the number of all runs: with more than `most_runs`, only every
// second, third, … is among "runs", and those whose speed changed.
std::string to_json(const Variability& variability, std::size_t most_runs = SIZE_MAX / 2);
std::string all_data_csv(const Variability& variability);
std::string aggregated_data_csv(const Variability& variability);  // one row per device
// For schedulers: device, node, cabinet, runs, score, class, why.
std::string scores_csv(const Variability& variability);
std::string terminal_text(const Variability& variability);

}  // namespace redline::report
