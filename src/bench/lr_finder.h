// Finds a learning rate to start with: each training step raises the rate by the same factor, from one at
// which nothing is learned to one at which the loss diverges. A good rate is where the loss falls fastest.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "bench/chart.h"
#include "train/config.h"

namespace redline::bench {

struct LrOptions {
  train::Config config;  // of the training that the rate is for; its own rate and schedule are not used
  double from = 1e-6, to = 10;
  std::int64_t steps = 200;
  const std::atomic<bool>* stop = nullptr;  // raised: ends the sweep, in the middle of a step if that is long
};

// Throws UsageError for a range or a number of steps that no sweep can have.
void validate(const LrOptions& options);

// One step. The loss is of its batch, before its update.
struct LrPoint {
  double rate = 0, loss = 0;
};

struct LrSweep {
  std::string model, dtype, device;
  std::int64_t batch = 0;       // images of an update
  double scale = 1;             // of a rate over its --lr, by --lr-scale-batch
  std::vector<LrPoint> points;  // with finite losses, rates rising by the same factor
  bool diverged = false;        // the sweep ended there, before its last rate
  bool stopped = false;         // by the caller
};

// Told after each step; false stops.
using LrProgress = std::function<bool(std::int64_t step)>;

// Runs the sweep with the real trainer, from the weights of config.model.init if given. Keeps nothing. It
// ends early if a loss or, ten times in a row, a gradient is not finite, or if the running mean of the losses
// is twice the initial one. Throws data::Stopped if options.stop became true while the data was indexed.
LrSweep sweep_rates(const LrOptions& options, const LrProgress& progress);

// A line fitted to a step and its neighbours, a tenth of the sweep on either side.
struct LrFit {
  double smoothed = 0;  // the line's loss at the step
  double slope = 0;     // loss per factor of ten of the rate
  double t = 0;         // slope over its standard error; 0 where there are no neighbours on one side
};
std::vector<LrFit> fit(const std::vector<LrPoint>& points);

// Where the smoothed loss falls fastest, on the way to its minimum.
struct LrSuggestion {
  std::optional<double> rate;
  std::optional<double> lowest;  // rate of the smallest smoothed loss, where a rate is suggested
  std::string why_not;           // and what to change
};

// Suggests no rate if the fall is not clear of noise (noise alone looks like a fall in one sweep of a
// hundred), if it is steepest at the first rates, or if the loss still falls at the last: a better rate may
// be outside the range.
LrSuggestion suggest(const LrSweep& sweep);

// The losses and the smoothed losses by rate, with a mark at the suggestion. Losses far above the initial one
// are cut off.
Chart lr_chart(const LrSweep& sweep, const LrSuggestion& suggestion);
// A line each; the first gives the names of the columns.
std::string lr_csv(const LrSweep& sweep);
nlohmann::ordered_json lr_json(const LrSweep& sweep, const LrSuggestion& suggestion);

}  // namespace redline::bench
