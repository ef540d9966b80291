#include "train/config.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"
#include "graph/models/resnet.h"
#include "profile/telemetry.h"
#include "train/interval.h"

namespace redline::train {
namespace {

void check_choices(const Config& config) {
  Config copied = config;
  for (const Field& field : fields()) {
    if (field.choices.empty()) continue;
    const std::string& value = std::get<Field::Member<std::string>>(field.member)(copied);
    if (value.empty() || std::ranges::find(field.choices, value) != field.choices.end()) continue;
    const std::string meant = nearest(value, field.choices);
    throw UsageError("{} '{}' is not known{} from {}", field.flag(), value,
                     meant.empty() ? "; choose" : fmt::format(", did you mean '{}'? Choose", meant),
                     fmt::join(field.choices, ", "));
  }
}

void at_least(const char* flag, std::int64_t value, std::int64_t least) {
  if (value < least) throw UsageError("{} {} must be at least {}", flag, value, least);
}

// Beyond these no shape is meant, and products of sizes stay far from overflow.
constexpr std::int64_t kMostImages = 1 << 20, kMostPixels = 1 << 16, kMostClasses = 1 << 20;
constexpr std::size_t kMostSizes = 64;
constexpr std::int64_t kLeastPixels = 8;  // less, and nothing of an image is left after the first layers

void at_most(const char* flag, std::int64_t value, std::int64_t most) {
  if (value > most) throw UsageError("{} {} must be at most {}", flag, value, most);
}

void at_least(const char* flag, const std::optional<std::int64_t>& value, std::int64_t least) {
  if (value) at_least(flag, *value, least);
}

void between(const char* flag, double value, double least, double most) {
  if (!(value >= least && value <= most))
    throw UsageError("{} {} must be from {} to {}", flag, value, least, most);
}

void finite_and_not_negative(const char* flag, double value) {
  if (!std::isfinite(value) || value < 0)
    throw UsageError("{} {} must be a number that is not negative", flag, value);
}

void exclusive(bool first, const char* first_flag, bool second, const char* second_flag) {
  if (first && second)
    throw UsageError("{} and {} contradict each other: give one of them", first_flag, second_flag);
}

void check_model_and_data(const Config& config) {
  const ModelConfig& model = config.model;
  const DataConfig& data = config.data;
  at_least("--classes", model.classes, 2);
  at_most("--classes", model.classes.value_or(2), kMostClasses);
  at_least("--image-size", model.image_size, kLeastPixels);
  at_most("--image-size", model.image_size, kMostPixels);
  between("--model-ema-decay", model.ema_decay, 0, 1);
  at_least("--workers", data.workers, 0);
  at_most("--workers", data.workers, 4096);
  between("--crop-pct", data.crop_pct, 0.01, 1);
  between("--max-bad", data.max_bad, 0, 1);
  between("--val-split", data.val_split, 0, 0.9);
  exclusive(data.val_split > 0, "--val-split", !data.val_dir.empty(), "--val-dir");
  at_least("--max-image-pixels", data.max_image_pixels, 1);
  at_least("--max-image-bytes", data.max_image_bytes, 1);
  at_least("--synthetic-batches", data.synthetic_batches, 1);
  if (data.path.empty()) {
    throw UsageError("no data: name an image folder, or 'synthetic' for random images made in memory");
  }
}

// The least and the most of something, from `least` to `most`.
void range_between(const char* flag, const std::vector<double>& range, double least, double most) {
  if (range.size() != 2) throw UsageError("{} takes two numbers, the smallest and the largest", flag);
  between(flag, range[0], least, most);
  between(flag, range[1], range[0], most);
}

void check_augment(const AugmentConfig& augment) {
  range_between("--scale", augment.scale, 1e-6, 1);
  range_between("--ratio", augment.ratio, 1e-3, 1e3);
  between("--hflip", augment.hflip, 0, 1);
  at_least("--ra-magnitude", augment.ra_magnitude, 0);
  at_most("--ra-magnitude", augment.ra_magnitude, 30);
  at_least("--ra-num-ops", augment.ra_num_ops, 0);
  at_most("--ra-num-ops", augment.ra_num_ops, 100);
  const std::vector<double>& jitter = augment.color_jitter;
  if (jitter.size() > 4)
    throw UsageError("--color-jitter takes up to four numbers: brightness, contrast, saturation, hue");
  for (const double strength : jitter) between("--color-jitter", strength, 0, 100);
  if (jitter.size() == 4) between("the hue of --color-jitter", jitter[3], 0, 0.5);
  between("--random-erase", augment.random_erase, 0, 1);
  range_between("--random-erase-scale", augment.random_erase_scale, 1e-6, 1);
  range_between("--random-erase-ratio", augment.random_erase_ratio, 1e-3, 1e3);
  between("--mixup-alpha", augment.mixup_alpha, 0, 1000);
  between("--cutmix-alpha", augment.cutmix_alpha, 0, 1000);
}

void check_optimizer(const OptimizerConfig& optimizer) {
  at_least("--batch-size", optimizer.batch_size, 1);
  at_most("--batch-size", optimizer.batch_size, kMostImages);
  at_least("--accumulate", optimizer.accumulate, 1);
  at_most("--accumulate", optimizer.accumulate, kMostImages);
  at_least("--global-batch", optimizer.global_batch, 0);
  at_most("--global-batch", optimizer.global_batch, kMostImages);
  finite_and_not_negative("--lr", optimizer.lr);
  if (!(optimizer.momentum >= 0 && optimizer.momentum < 1)) {
    throw UsageError("--momentum {} must be at least 0 and less than 1", optimizer.momentum);
  }
  finite_and_not_negative("--weight-decay", optimizer.weight_decay);
  finite_and_not_negative("--lars-trust", optimizer.lars_trust);
  if (!(optimizer.label_smoothing >= 0 && optimizer.label_smoothing < 1)) {
    throw UsageError("--label-smoothing {} must be at least 0 and less than 1", optimizer.label_smoothing);
  }
  const std::string name = "--opt " + optimizer.name;
  exclusive(optimizer.nesterov, "--nesterov", optimizer.name != "sgd", name.c_str());
  if (optimizer.betas.size() != 2) throw UsageError("--opt-betas takes two numbers, as 0.9,0.999");
  for (const double beta : optimizer.betas) {
    if (!(beta > 0 && beta < 1)) throw UsageError("--opt-betas {} must be between 0 and 1", beta);
  }
  finite_and_not_negative("--opt-eps", optimizer.epsilon);
  finite_and_not_negative("--clip-norm", optimizer.clip_norm);
  finite_and_not_negative("--head-lr", optimizer.head_lr);
  if (optimizer.head_lr > 0 && optimizer.lr == 0)
    throw UsageError(
        "--head-lr {} follows the schedule of --lr, which is 0: give a small one, or use --freeze",
        optimizer.head_lr);
  between("--layer-decay", optimizer.layer_decay, 0, 1);
  frozen_parts(optimizer);
  if (optimizer.nesterov && optimizer.momentum == 0) {
    throw UsageError(
        "--nesterov and --momentum 0 contradict each other: Nesterov momentum needs a momentum above 0");
  }
}

void check_schedule(const ScheduleConfig& schedule) {
  at_least("--epochs", schedule.epochs, 1);
  at_least("--steps", schedule.steps, 1);
  at_least("--lr-step-size", schedule.step_size, 1);
  at_least("--lr-warmup-epochs", schedule.warmup_epochs, 0);
  at_least("--lr-warmup-steps", schedule.warmup_steps, 0);
  exclusive(schedule.epochs.has_value(), "--epochs", schedule.steps.has_value(), "--steps");
  exclusive(schedule.step_size.has_value(), "--lr-step-size", !schedule.milestones.empty(),
            "--lr-milestones");
  exclusive(schedule.warmup_epochs.has_value(), "--lr-warmup-epochs", schedule.warmup_steps.has_value(),
            "--lr-warmup-steps");
  if (schedule.name != "step") {
    const std::string scheduler = "--lr-scheduler " + schedule.name;
    exclusive(schedule.step_size.has_value(), "--lr-step-size", true, scheduler.c_str());
    exclusive(!schedule.milestones.empty(), "--lr-milestones", true, scheduler.c_str());
  }
  for (std::size_t i = 0; i < schedule.milestones.size(); ++i) {
    at_least("--lr-milestones", schedule.milestones[i], 1);
    if (i > 0 && schedule.milestones[i] <= schedule.milestones[i - 1]) {
      throw UsageError("--lr-milestones must rise: {} comes after {}", schedule.milestones[i],
                       schedule.milestones[i - 1]);
    }
  }
  if (schedule.train_sizes.size() > kMostSizes)
    throw UsageError("--train-sizes: {} sizes are too many, use at most {}", schedule.train_sizes.size(),
                     kMostSizes);
  for (const std::int64_t size : schedule.train_sizes) {
    at_least("--train-sizes", size, kLeastPixels);
    at_most("--train-sizes", size, kMostPixels);
  }
  finite_and_not_negative("--lr-gamma", schedule.gamma);
  finite_and_not_negative("--lr-power", schedule.power);
  finite_and_not_negative("--lr-min", schedule.min_lr);
}

void check_comm(const CommConfig& comm) {
  between("--bucket-mb", comm.bucket_mb, 0.01, 65536);
  at_least("--check-every", comm.check_every, 0);
  between("--comm-timeout", comm.timeout, 1, 1e6);
  between("--join-timeout", comm.join_timeout, 1, 1e6);
}

void check_device_and_run(const Config& config) {
  exclusive(config.device.amp, "--amp", !config.device.dtype.empty() && config.device.dtype != "auto",
            "--dtype");
  exclusive(config.device.no_fuse, "--no-fuse", config.device.recompute != "none", "--recompute");
  at_least("--threads", config.device.threads, 0);
  at_most("--threads", config.device.threads, 4096);
  at_least("--seed", config.run.seed, 0);
  at_least("--eval-every", config.run.eval_every, 0);
  at_least("--eval-offset", config.run.eval_offset, 0);
  if (config.run.eval_offset > 0 && config.run.eval_offset >= config.run.eval_every)
    throw UsageError("--eval-offset {} must be less than --eval-every {}", config.run.eval_offset,
                     config.run.eval_every);
  if (const double target = config.run.target_accuracy; !(target >= 0 && target <= 1))
    throw UsageError(
        "--target-accuracy {} must be from 0 to 1: a fraction of the images, such as 0.759 for 75.9%",
        target);
  at_least("--patience", config.run.patience, 0);
  if (config.run.patience > 0 && config.run.eval_every == 0)
    throw UsageError(
        "--patience {} and --eval-every 0 contradict each other: it needs evaluations during training",
        config.run.patience);
  if (!config.run.mlperf_log.empty() && config.run.target_accuracy == 0)
    throw UsageError("--mlperf-log needs --target-accuracy: MLPerf measures the time to an accuracy (0.759)");
  at_least("--log-every", config.run.log_every, 1);
  at_least("--histograms-every", config.run.histograms_every, 0);
  at_least("--max-bad-steps", config.run.max_bad_steps, 1);
  at_least("--keep", config.run.keep, 1);
  if (!config.run.checkpoint_every.empty()) parse_interval(config.run.checkpoint_every, "--checkpoint-every");
  if (config.run.output_dir.empty()) throw UsageError("--output-dir is empty");
  const std::string& name = config.run.name;
  if (name == "." || name == ".." || name.find('/') != std::string::npos) {
    throw UsageError("--name '{}' must be the name of one folder; --output-dir says where it goes", name);
  }
}

}  // namespace

void validate(const Config& config) {
  check_choices(config);
  profile::parse_sampling(config.run.telemetry, "--telemetry");  // first: it may have taken the data's place
  check_model_and_data(config);
  check_augment(config.augment);
  check_optimizer(config.optimizer);
  check_schedule(config.schedule);
  check_comm(config.comm);
  check_device_and_run(config);
}

int frozen_parts(const OptimizerConfig& optimizer) {
  constexpr std::size_t kMost = graph::kParts.size() - 1;  // the head is always trained
  const std::vector<std::string> choices(graph::kParts.begin(), graph::kParts.begin() + kMost);
  std::vector<bool> named(kMost);
  std::stringstream list(optimizer.freeze);
  for (std::string part; std::getline(list, part, ',');) {
    const auto found = std::ranges::find(choices, part);
    if (found == choices.end()) {
      throw UsageError("--freeze '{}': '{}' is not a part that can be frozen; choose from {}",
                       optimizer.freeze, part, fmt::join(choices, ", "));
    }
    named[static_cast<std::size_t>(found - choices.begin())] = true;
  }
  const auto trained = std::ranges::find(named, false), last = std::find(trained, named.end(), true);
  if (last != named.end()) {
    const auto count = last - named.begin() + 1;
    throw UsageError("--freeze {}: {} comes before {} and would still be trained; freeze all of {}",
                     optimizer.freeze, choices[static_cast<std::size_t>(trained - named.begin())],
                     choices[static_cast<std::size_t>(last - named.begin())],
                     fmt::join(choices.begin(), choices.begin() + count, ","));
  }
  return static_cast<int>(trained - named.begin());
}

std::string checkpoint_interval(const Config& config) {
  constexpr const char* kUsual = "10m";  // loses little, and costs little however long an epoch is
  if (!config.run.checkpoint_every.empty()) return config.run.checkpoint_every;
  return config.data.synthetic() ? "off" : kUsual;
}

std::int64_t images_per_step(const Config& config) {
  return config.optimizer.batch_size * config.optimizer.accumulate * config.ranks;
}

void share_global_batch(Config& config) {
  OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.global_batch == 0) return;
  if (optimizer.global_batch % config.ranks != 0)
    throw UsageError(
        "--global-batch {} cannot be divided among {} ranks: use a number of ranks that divides it",
        optimizer.global_batch, config.ranks);
  if (optimizer.most_batch == 0) optimizer.most_batch = optimizer.batch_size;
  const std::int64_t images = optimizer.global_batch / config.ranks;
  std::int64_t batches = (images + optimizer.most_batch - 1) / optimizer.most_batch;
  while (images % batches != 0) ++batches;
  optimizer.batch_size = images / batches;
  optimizer.accumulate = batches;
}

Config before_sharing(Config config) {
  if (config.optimizer.most_batch == 0) return config;
  config.optimizer.batch_size = config.optimizer.most_batch;
  config.optimizer.accumulate = 1;
  config.optimizer.most_batch = 0;
  return config;
}

}  // namespace redline::train
