#include "train/mlperf.h"

#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/log.h"
#include "graph/op.h"
#include "train/schedule.h"

namespace redline::train {
namespace {

// ImageNet's, and the accuracy that ends a run of the benchmark.
constexpr std::int64_t kClasses = 1000, kTrainImages = 1'281'167, kEvalImages = 50'000;
constexpr double kTarget = 0.759;
constexpr double kEndRate = 1e-4;
constexpr std::int64_t kEvalEvery = 4;

bool whole(double value) { return std::abs(std::round(value) - value) < 1e-5; }

bool plain(const AugmentConfig& augment) {
  return augment.auto_augment == "none" && augment.color_jitter.empty() && augment.random_erase == 0 &&
         augment.mixup_alpha == 0 && augment.cutmix_alpha == 0;
}

}  // namespace

std::string open_division_reason(const Config& config, const metrics::RunInfo& info) {
  const OptimizerConfig& optimizer = config.optimizer;
  const ScheduleConfig& schedule = config.schedule;
  const Schedule rates = make_schedule(config, info.steps_per_epoch);
  const bool lars = optimizer.name == "lars";
  const std::vector<std::pair<bool, std::string>> rules = {
      {config.model.name == "resnet50", "--model is not resnet50"},
      {config.model.image_size == 224, "--image-size is not 224"},
      {schedule.train_sizes.empty(), "--train-sizes is set"},
      {info.classes == kClasses, fmt::format("the data does not have {} classes", kClasses)},
      {info.train_samples == kTrainImages, fmt::format("there are not {} training images", kTrainImages)},
      {info.val_samples == kEvalImages, fmt::format("there are not {} held-out images", kEvalImages)},
      {config.model.init.empty(), "--init is set"},
      {!config.model.ema, "--model-ema is set"},
      {plain(config.augment), "images are augmented by more than a crop and a flip"},
      {optimizer.name == "sgd" || lars, "--opt is neither sgd nor lars"},
      {!optimizer.nesterov, "--nesterov is set"},
      {optimizer.clip_norm == 0, "--clip-norm is set"},
      {optimizer.freeze.empty(), "--freeze is set"},
      {optimizer.head_lr == 0 && optimizer.layer_decay == 1, "layers have different learning rates"},
      {schedule.name == "poly", "--lr-scheduler is not poly"},
      {!lars || schedule.power == 2, "--lr-power is not 2"},
      {schedule.min_lr == kEndRate, "--lr-min is not 0.0001"},
      {lars || whole(rates.peak / 0.001), "--lr is not a multiple of 0.001"},
      {optimizer.weight_decay > 0 && whole(std::log2(optimizer.weight_decay / 0.0001)),
       "--weight-decay is not 0.0001 times a power of two"},
      {config.run.eval_every == kEvalEvery, "--eval-every is not 4"},
      {config.run.target_accuracy >= kTarget, "--target-accuracy is less than 0.759"},
  };
  for (const auto& [holds, otherwise] : rules)
    if (!holds) return otherwise;
  return {};
}

metrics::MlperfFacts mlperf_facts(const Config& config, const metrics::RunInfo& info,
                                  std::chrono::system_clock::time_point began) {
  const OptimizerConfig& optimizer = config.optimizer;
  const Schedule rates = make_schedule(config, info.steps_per_epoch);
  const double warmup = static_cast<double>(rates.warmup_steps) / static_cast<double>(info.steps_per_epoch);
  const std::int64_t decay = rates.total_steps - rates.warmup_steps;
  const bool open = !open_division_reason(config, info).empty();
  const std::string& name = optimizer.name;
  metrics::MlperfFacts facts;
  facts.began = began;
  facts.eval_every = config.run.eval_every;
  facts.eval_offset = config.run.eval_offset;
  facts.values = {
      {"submission_benchmark", "resnet"},
      {"submission_division", open ? "open" : "closed"},
      {"submission_org", config.run.mlperf_org.empty() ? "none" : config.run.mlperf_org},
      {"submission_platform", info.device},
      {"submission_status", "research"},
      {"seed", config.run.seed},
      {"global_batch_size", images_per_step(config)},
      {"gradient_accumulation_steps", optimizer.accumulate},
      {"model_bn_span", optimizer.batch_size * (config.comm.sync_bn ? config.ranks : 1)},
      {"opt_name", name},
      {"opt_base_learning_rate", rates.peak},
      {"opt_end_learning_rate", rates.floor},
      {"opt_learning_rate_warmup_epochs", warmup},
      {"opt_weight_decay", optimizer.weight_decay},
      {name + "_opt_base_learning_rate", rates.peak},
      {name + "_opt_end_learning_rate", rates.floor},
      {name + "_opt_learning_rate_decay_poly_power", rates.power},
      {name + "_opt_learning_rate_decay_steps", decay},
      {name + "_opt_learning_rate_warmup_epochs", warmup},
      {name + "_opt_momentum", optimizer.momentum},
      {name + "_opt_weight_decay", optimizer.weight_decay},
  };
  if (name == "lars") facts.values.emplace_back("lars_epsilon", double{graph::LarsAttr{}.epsilon});
  return facts;
}

std::unique_ptr<metrics::Sink> mlperf_sink(const Config& config, const metrics::RunInfo& info,
                                           const std::filesystem::path& folder,
                                           std::chrono::system_clock::time_point began) {
  if (const std::string reason = open_division_reason(config, info); !reason.empty())
    log_info("the MLPerf log is for the open division: {}", reason);
  const std::filesystem::path path =
      config.run.mlperf_log == "auto" ? folder / "mlperf.log" : std::filesystem::path(config.run.mlperf_log);
  return std::make_unique<metrics::MlperfSink>(path, mlperf_facts(config, info, began), info.resumed);
}

}  // namespace redline::train
