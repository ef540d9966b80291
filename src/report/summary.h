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

// How a run ended.
enum class State { finished, interrupted, failed, unfinished };
State state_of(const Run& run);
const char* name_of(State state);

// Steps that took so much longer than the median, with the wait before them, that something held them up.
struct Stalls {
  std::size_t steps = 0;
  double seconds = 0;  // beyond as many median steps
  double share = 0;    // of the training time
  std::int64_t longest_step = 0;
  double longest_seconds = 0;
};
inline constexpr double kStallMedians = 5;  // times the median

struct RunSummary {
  State state = State::unfinished;
  std::int64_t steps = 0, total_steps = 0;
  double seconds = 0;                                            // from the first step on, as far as known
  std::optional<Summary> step_seconds;                           // timed steps only
  std::optional<double> images_per_second;                       // stalls count, evaluations do not
  std::optional<ConfidenceInterval> images_per_second_interval;  // none for too few or too uneven steps
  std::optional<double> images_per_second_at_median;             // at the median step, so without stalls
  std::optional<Stalls> stalls;                   // if they took at least a hundredth of the training time
  std::optional<double> data_wait;                // fraction of the training time
  std::optional<double> final_loss;               // mean over the last tenth of the steps, at most 100
  std::optional<metrics::Evaluation> last, best;  // evaluations; best by top-1
  std::optional<Energy> energy;
  std::optional<double> temperature_c;    // the highest
  std::optional<double> clock_mhz;        // median
  std::optional<double> memory_bytes;     // peak use: on the GPU, or resident without one
  std::vector<Throttle> throttling;       // longest first; fractions of the time of all devices
  std::vector<std::string> disturbances;  // what else kept the machine busy, for people
};
RunSummary summarize(const Run& run);

// Where the device's time went: steps, and the gaps between them by cause.
struct TimeShare {
  const char* name;
  std::vector<double> Steps::*seconds;
  double metrics::Gap::*gap;  // null: the steps
};
inline constexpr TimeShare kTimeShares[] = {
    {"step", &Steps::seconds, nullptr},
    {"data", &Steps::data_seconds, &metrics::Gap::data},
    {"host", &Steps::host_seconds, &metrics::Gap::host},
    {"exchange", &Steps::exchange_seconds, &metrics::Gap::exchange},
    {"evaluation", &Steps::evaluation_seconds, &metrics::Gap::evaluation},
    {"checkpoint", &Steps::checkpoint_seconds, &metrics::Gap::checkpoint},
};
// Of the whole run: from its last line, which includes the time after the last step, or else summed over
// steps.
double total_seconds(const Run& run, const TimeShare& share);

// Training time per image of each timed step, in order: stalls count, evaluations do not. The mean is 1 /
// images_per_second.
std::vector<double> seconds_per_image(const Run& run);

}  // namespace redline::report
