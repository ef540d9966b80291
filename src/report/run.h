// A run as a report sees it: what its folder tells, read from the files alone.
//
// Folders may be damaged, unfinished, or of another version. What can be read is given, and `problems` says
// what could not, for people.
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

// The steps of a run, one entry a step in each column. What a line lacks is NaN.
struct Steps {
  std::vector<double> step;  // rising
  std::vector<double> epoch, loss, top1, top5, learning_rate, gradient_norm, loss_scale, samples;
  // The device's time in the step, its standing still before it, and that by cause, as metrics::Step has
  // them.
  std::vector<double> seconds, gap_seconds, data_seconds, host_seconds, exchange_seconds, evaluation_seconds,
      checkpoint_seconds;
  std::vector<double> elapsed;
  std::vector<double> communication_seconds, slowest_rank, slowest_seconds;  // with several ranks
  std::vector<std::size_t>
      begins;  // indices of steps that a process began with, which warm up and count for no timing
  std::size_t skipped = 0;

  std::size_t size() const { return step.size(); }
};

// A column by the name it has in metrics.jsonl, for writing all of them.
struct StepColumn {
  const char* name;
  std::vector<double> Steps::*values;
};
const std::vector<StepColumn>& step_columns();

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct Run {
  std::filesystem::path folder;
  std::string name;       // the folder's, whatever its files say
  metrics::RunInfo info;  // of the first line; empty without one
  Pairs facts;            // [record] of config.toml: machine, versions, command
  Pairs options;          // "section.key", value
  Steps steps;
  std::vector<metrics::Evaluation> evaluations;
  std::vector<metrics::Checkpoint> checkpoints;
  std::vector<metrics::Notice> notices;
  std::optional<metrics::End> end;  // none: it goes on, or was killed
  int resumes = 0;
  std::vector<Telemetry> telemetry;  // of each file, one a process
  std::optional<Profile> profile;
  std::vector<std::string> problems;

  std::string fact(const std::string& name) const;  // empty when there is none
};

// Whether there is a folder with files of a run in it.
bool is_run_folder(const std::filesystem::path& folder);

// Follows a run folder. One thread at a time.
class RunReader {
 public:
  // Throws UsageError when there is no such folder, or nothing in it is of a run.
  explicit RunReader(const std::filesystem::path& folder);
  ~RunReader();
  RunReader(RunReader&&) noexcept;

  // Reads what is new; whether anything is. A file that became shorter (a run that was resumed from an
  // earlier step) is read from the start again.
  bool update();
  const Run& run() const;
  Run take() &&;  // what was read; the reader is done

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

Run read_run(const std::filesystem::path& folder);

// The steps that count for timing: every one with a time but those a process began with. Indices, rising.
std::vector<std::size_t> timed_steps(const Run& run);
// Their times.
std::vector<double> step_seconds(const Run& run);

// How long a step kept training busy, from the end of the one before: stalls are counted, evaluations left
// out. NaN where it is not known.
double training_seconds(const Steps& steps, std::size_t i);

// A data set by its own name: the folder it lies in differs between machines.
std::string data_name(const metrics::RunInfo& info);

}  // namespace redline::report
