// A run in a few numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/statistics.h"
#include "report/energy.h"
#include "report/run.h"
#include "report/throttle.h"

namespace redline::report {

// How a run ended, as people say it.
enum class State { finished, interrupted, failed, unfinished };
State state_of(const Run& run);
const char* name_of(State state);

struct RunSummary {
  State state = State::unfinished;
  std::int64_t steps = 0, total_steps = 0;
  double seconds = 0;                   // from the first step on, as far as is known
  std::optional<Summary> step_seconds;  // of steps that count for timing; none when there are none
  std::optional<double>
      images_per_second;  // images over the time they took: stalls count, evaluations do not
  std::optional<ConfidenceInterval> images_per_second_interval;
  std::optional<double> images_per_second_at_median;  // at the median step: stalls do not count
  std::optional<double> data_wait;                    // part of the training time
  std::optional<double> final_loss;  // mean over the last tenth of the steps, at most 100 of them
  std::optional<metrics::Evaluation> last, best;  // evaluations; best by top-1
  std::optional<Energy> energy;
  std::optional<double> temperature_c;    // the highest
  std::optional<double> clock_mhz;        // median
  std::optional<double> memory_bytes;     // the most that was in use: on the GPU, or resident without one
  std::vector<Throttle> throttling;       // the longest first; shares of the time of all devices
  std::vector<std::string> disturbances;  // what else kept the machine busy, in words
};
RunSummary summarize(const Run& run);

// Of the steps that count, how long training took for an image, in order: stalls count, evaluations do not.
// The mean is one over images_per_second.
std::vector<double> seconds_per_image(const Run& run);

}  // namespace redline::report
