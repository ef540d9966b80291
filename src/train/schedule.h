// The learning rate of every step: a pure function of the step number.
#pragma once

#include <cstdint>
#include <vector>

#include "train/config.h"

namespace redline::train {

enum class Decay : std::uint8_t { step, cosine, poly };

// All lengths in steps (updates).
struct Schedule {
  Decay decay = Decay::step;
  double peak = 0.1;  // the learning rate after warm-up, batch scaling included
  std::int64_t total_steps = 1;
  std::int64_t warmup_steps = 0;
  std::vector<std::int64_t> milestones;  // rising; step decay multiplies by gamma at each, …
  std::int64_t every = 0;                // … or, without milestones, each time this many steps have passed
  double gamma = 0.1;
  double power = 2;
  double floor = 0;  // where cosine and poly end
};

// The schedule of a run whose epochs have this many steps. Throws UsageError when the warm-up leaves no step.
Schedule make_schedule(const Config& config, std::int64_t steps_per_epoch);

// The factor on --lr in the schedule: 1 without --lr-scale-batch.
double rate_scale(const Config& config);

// How many updates the run makes.
std::int64_t total_steps(const Config& config, std::int64_t steps_per_epoch);

// Of step 0, 1, … total_steps - 1. Warm-up rises linearly and gives the peak at its last step. Step decay
// counts from the beginning of training; cosine and poly begin after the warm-up and would reach the floor at
// total_steps.
double learning_rate(const Schedule& schedule, std::int64_t step);

// The size of training images in an epoch (0, 1, … epochs - 1): --train-sizes one after the other, each for
// its share.
std::int64_t train_size(const Config& config, std::int64_t epoch, std::int64_t epochs);

// All of them, each once, the largest first.
std::vector<std::int64_t> train_sizes(const Config& config);

// Decay of a model's moving average at a step: as configured, or less in the first steps: min(decay, (1 +
// step) / (10 + step)).
double ema_decay(double decay, std::int64_t step);

}  // namespace redline::train
