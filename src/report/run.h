// A run as a report sees it, read only from the files in its folder.
//
// Folders may be damaged, unfinished, or written by another version. Everything readable is returned, and
// `problems` tells people what was not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "metrics/records.h"
#include "report/profile.h"

namespace redline::report {

// The steps of a run; each column has one entry per step. Missing values are NaN.
struct Steps {
  std::vector<double> step;  // ascending
  std::vector<double> epoch, loss, top1, top5, learning_rate, gradient_norm, loss_scale, samples;
  // The device's time in the step, its idle time before it, and that time by cause, as in metrics::Step.
  std::vector<double> seconds, gap_seconds, data_seconds, host_seconds, exchange_seconds, evaluation_seconds,
      checkpoint_seconds;
  std::vector<double> elapsed;
  std::vector<double> communication_seconds, slowest_rank, slowest_seconds;  // with several ranks
  std::vector<std::size_t> begins;  // indices of the first step of each process: warm-up, not timed
  std::size_t skipped = 0;

  std::size_t size() const { return step.size(); }
};

// A column and its name in metrics.jsonl.
struct StepColumn {
  const char* name;
  std::vector<double> Steps::*values;
};
const std::vector<StepColumn>& step_columns();

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct Run {
  std::filesystem::path folder;
  std::string name;       // the folder's name, whatever its files say
  metrics::RunInfo info;  // from the first line; empty without one
  Pairs facts;            // [record] of config.toml: machine, versions, command
  Pairs options;          // "section.key", value
  Steps steps;
  std::vector<metrics::Evaluation> evaluations;
  std::vector<metrics::Checkpoint> checkpoints;
  std::vector<metrics::Notice> notices;
  std::optional<metrics::End> end;  // empty: still running, or killed
  int resumes = 0;
  std::vector<Telemetry> telemetry;  // one per file, and one file per process
  std::optional<Profile> profile;
  std::vector<std::string> problems;

  std::string fact(const std::string& name) const;  // empty if there is none
};

// Whether this is a folder with files of a run.
bool is_run_folder(const std::filesystem::path& folder);

// Follows a run folder. One thread at a time.
class RunReader {
 public:
  // Throws UsageError if the folder does not exist or is not a run folder.
  explicit RunReader(const std::filesystem::path& folder);
  ~RunReader();
  RunReader(RunReader&&) noexcept;

  // Reads what is new and returns whether there was anything. A file that became shorter (the run was resumed
  // from an earlier step) is read again from the start.
  bool update();
  const Run& run() const;
  Run take() &&;  // what was read; the reader cannot be used afterwards

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

Run read_run(const std::filesystem::path& folder);

// Steps that count for timing: all that have a time, except the first of each process. Indices, ascending.
std::vector<std::size_t> timed_steps(const Run& run);
// Their times.
std::vector<double> step_seconds(const Run& run);

// Training time of a step, from the end of the one before: stalls count, evaluations do not. NaN if unknown.
double training_seconds(const Steps& steps, std::size_t i);
// How much of it the ranks waited for each other, within the step and before it. NaN if unknown.
double waiting_seconds(const Steps& steps, std::size_t i);

// A data set's own name: its folder differs between machines.
std::string data_name(const metrics::RunInfo& info);

}  // namespace redline::report
