#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "base/error.h"

namespace redline::train {
namespace {

// Images per step at which --lr-scale-batch leaves the learning rate alone.
constexpr double kReferenceImages = 256;

// Epoch counts come from users; a product that does not fit is "never".
std::int64_t steps_of(std::int64_t epochs, std::int64_t steps_per_epoch) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  return epochs > kMost / std::max<std::int64_t>(1, steps_per_epoch) ? kMost : epochs * steps_per_epoch;
}

}  // namespace

std::int64_t total_steps(const Config& config, std::int64_t steps_per_epoch) {
  if (config.schedule.steps) return *config.schedule.steps;
  return steps_of(config.schedule.epochs.value_or(kDefaultEpochs), steps_per_epoch);
}

double rate_scale(const Config& config) {
  return config.optimizer.lr_scale_batch ? static_cast<double>(images_per_step(config)) / kReferenceImages
                                         : 1;
}

Schedule make_schedule(const Config& config, std::int64_t steps_per_epoch) {
  const ScheduleConfig& options = config.schedule;
  Schedule schedule;
  schedule.decay = options.name == "cosine" ? Decay::cosine
                   : options.name == "poly" ? Decay::poly
                                            : Decay::step;
  schedule.peak = config.optimizer.lr * rate_scale(config);
  schedule.total_steps = total_steps(config, steps_per_epoch);
  schedule.warmup_steps = options.warmup_steps ? *options.warmup_steps
                                               : steps_of(options.warmup_epochs.value_or(0), steps_per_epoch);
  schedule.gamma = options.gamma;
  schedule.power = options.power;
  schedule.floor = options.min_lr;
  if (schedule.warmup_steps > 0 && schedule.warmup_steps >= schedule.total_steps) {
    throw UsageError("{} takes {} steps and training has only {}: shorten the warm-up or train longer",
                     options.warmup_steps ? "--lr-warmup-steps" : "--lr-warmup-epochs", schedule.warmup_steps,
                     schedule.total_steps);
  }
  if (schedule.decay != Decay::step) return schedule;
  for (std::int64_t epoch : options.milestones)
    schedule.milestones.push_back(steps_of(epoch, steps_per_epoch));
  if (options.milestones.empty()) {
    schedule.every = steps_of(options.step_size.value_or(kDefaultStepSize), steps_per_epoch);
  }
  return schedule;
}

double learning_rate(const Schedule& schedule, std::int64_t step) {
  if (step < schedule.warmup_steps) {
    return schedule.peak * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  }
  if (schedule.decay == Decay::step) {
    const std::int64_t passed = schedule.every > 0 ? step / schedule.every
                                                   : std::ranges::upper_bound(schedule.milestones, step) -
                                                         schedule.milestones.begin();
    return schedule.peak * std::pow(schedule.gamma, static_cast<double>(passed));
  }
  const double done = static_cast<double>(step - schedule.warmup_steps) /
                      static_cast<double>(schedule.total_steps - schedule.warmup_steps);
  const double left = schedule.decay == Decay::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * done))
                                                      : std::pow(1 - done, schedule.power);
  return schedule.floor + (schedule.peak - schedule.floor) * left;
}

std::int64_t train_size(const Config& config, std::int64_t epoch, std::int64_t epochs) {
  const std::vector<std::int64_t>& sizes = config.schedule.train_sizes;
  if (sizes.empty()) return config.model.image_size;
  const auto count = static_cast<std::int64_t>(sizes.size());
  const std::int64_t at = epoch * count / std::max<std::int64_t>(1, epochs);
  return sizes[static_cast<std::size_t>(std::min(at, count - 1))];
}

std::vector<std::int64_t> train_sizes(const Config& config) {
  std::vector<std::int64_t> sizes = config.schedule.train_sizes;
  if (sizes.empty()) return {config.model.image_size};
  std::ranges::sort(sizes, std::greater());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

double ema_decay(double decay, std::int64_t step) {
  return std::min(decay, static_cast<double>(1 + step) / static_cast<double>(10 + step));
}

}  // namespace redline::train
