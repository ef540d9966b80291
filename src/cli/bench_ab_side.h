// One side of `redline bench ab`: a training command, run as a process of its own, and what its run tells.
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
  bool sets_length = false;                                      // it has --steps or --epochs of its own

  std::string text() const;  // as a shell would take it
};

// The words of a side are, as env(1) has them, NAME=value words, a program (a word with a slash in it), and
// options of `train`; the word `train` first gives the whole command, its data included. `binary` is the
// program where the words name none. Throws UsageError for words that bench ab sets itself.
SideCommand parse_side(bench::Side side, const std::string& binary, const std::string& data,
                       const std::vector<std::string>& common, std::vector<std::string> words);

// What else the machine did during a run; empty where the kernel does not tell.
struct Disturbance {
  std::optional<double> load;         // of the last minute, at the end of the run
  std::optional<double> other_cores;  // that other processes kept busy
  std::optional<double> steal;        // part of the processors' time that the hypervisor gave to others
};

struct SideRun {
  double images_per_second = 0;  // images over the time they took, evaluation left out
  double step_seconds = 0;       // median of the device's
  std::int64_t steps = 0;        // counted
  double wall_seconds = 0;       // of the process
  double startup_seconds = 0;    // of these, outside training: until the first step, and after the last
  Disturbance disturbance;
  std::vector<std::string> notices;  // what the run itself says disturbed it, or bounds its speed
};

// The steps after the first `warmup`. Throws DataError when there are none.
SideRun measure_run(const report::Run& run, std::int64_t warmup);

nlohmann::ordered_json to_json(const SideRun& run);

struct SideOptions {
  std::filesystem::path folder;       // for its output; what it leaves there is removed
  std::optional<std::int64_t> steps;  // added to the command unless it sets its length
  std::int64_t warmup = 5;
};

// Runs the command to its end; empty when `stop` was raised, which ends it. A command that fails is thrown as
// an Error with its exit code and the last lines it wrote. `record`, where it is given, gets the run as read.
std::optional<SideRun> run_side(bench::Side side, const SideCommand& command, const SideOptions& options,
                                const std::atomic<bool>& stop, report::Run* record = nullptr);

}  // namespace redline::cli
