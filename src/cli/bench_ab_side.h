// One side of `redline bench ab`: a training command, run as a separate process, and the results of its run.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "bench/ab.h"
#include "report/run.h"

namespace redline::cli {

struct SideCommand {
  std::vector<std::pair<std::string, std::string>> environment;  // added to this process's
  std::string program;                                           // a path; empty: this program
  std::vector<std::string> words;                                // its arguments: "train", …
  bool sets_length = false;                                      // it has its own --steps or --epochs

  std::string text() const;  // as typed in a shell
};

// The words of a side are, as in env(1), NAME=value words, a program (a word with a slash in it), and options
// of `train`. If `train` comes first, the words are the whole command with its data. `binary` is the default
// program. Throws UsageError for options that bench ab sets itself.
SideCommand parse_side(bench::Side side, const std::string& binary, const std::string& data,
                       const std::vector<std::string>& common, std::vector<std::string> words);

// What else the machine did during a run; empty if the kernel does not report it.
struct Disturbance {
  std::optional<double> load;         // average of the last minute, at the end of the run
  std::optional<double> other_cores;  // kept busy by other processes
  std::optional<double> steal;        // fraction of the processors' time that the hypervisor gave to others
};

struct SideRun {
  double images_per_second = 0;  // images over their time, without evaluation
  double step_seconds = 0;       // median, by the device's clock
  std::int64_t steps = 0;        // counted
  double wall_seconds = 0;       // of the process
  double startup_seconds = 0;    // of these, before the first step and after the last
  Disturbance disturbance;
  std::vector<std::string> notices;  // what disturbed the run or bounds its speed, as it reported
};

// Measures the steps after the first `warmup`. Throws DataError if there are none.
SideRun measure_run(const report::Run& run, std::int64_t warmup);

nlohmann::ordered_json to_json(const SideRun& run);

struct SideOptions {
  std::filesystem::path folder;       // for its output, which is removed
  std::optional<std::int64_t> steps;  // added to the command unless it sets its own length
  std::int64_t warmup = 5;
};

// Runs the command to its end; empty if `stop` was set, which ends it early. If the command fails, throws an
// Error with its exit code and last lines of output. `record`, if given, gets the run as read.
std::optional<SideRun> run_side(bench::Side side, const SideCommand& command, const SideOptions& options,
                                const std::atomic<bool>& stop, report::Run* record = nullptr);

}  // namespace redline::cli
