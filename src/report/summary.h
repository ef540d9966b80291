// A run in a few numbers, and several runs beside each other: what differs beyond noise.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/statistics.h"
#include "report/run.h"

namespace redline::report {

// How a run ended, as people say it.
enum class State { finished, interrupted, failed, unfinished };
State state_of(const Run& run);
const char* name_of(State state);

struct RunSummary {
  State state = State::unfinished;
  std::int64_t steps = 0, total_steps = 0;
  double seconds = 0;                       // from the first step on, as far as is known
  std::optional<Summary> step_seconds;      // of steps that count for timing; none when there are none
  std::optional<double> images_per_second;  // at the median step
  std::optional<ConfidenceInterval> images_per_second_interval;
  std::optional<double> data_wait;   // part of the training time
  std::optional<double> final_loss;  // mean over the last tenth of the steps, at most 100 of them
  std::optional<metrics::Evaluation> last, best;  // evaluations; best by top-1
  std::optional<double> power_w,
      energy_j;  // of the GPU, or of the CPU without one; mean and sum over the samples
  std::optional<double> temperature_c;  // the highest
  std::optional<double> clock_mhz;      // median
  std::optional<double> memory_bytes;   // the most that was in use: on the GPU, or resident without one
};
RunSummary summarize(const Run& run);

// One quantity over the runs.
struct Comparison {
  std::string name, unit;
  enum class Better { higher, lower, neither } better = Better::neither;
  std::vector<std::optional<double>> values;  // a run each
  std::vector<std::optional<Change>>
      changes;  // against the first run; none for it, and where noise is not known
};

// The first run is what the others are compared with.
std::vector<Comparison> compare(const std::vector<const Run*>& runs,
                                const std::vector<RunSummary>& summaries);

// Options and facts that are not the same in all runs: the name, then the value in each ("" where it is
// missing).
struct Difference {
  std::string name;
  std::vector<std::string> values;
};
std::vector<Difference> differences(const std::vector<const Run*>& runs);

}  // namespace redline::report
