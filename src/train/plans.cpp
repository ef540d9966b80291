#include "train/plans.h"

#include <string>

#include "train/batches.h"
#include "train/schedule.h"

namespace redline::train {
namespace {

plan::Recompute recompute_of(const std::string& name) {
  using enum plan::Recompute;
  return name == "blocks" ? blocks : name == "activations" ? activations : none;
}

void set_optimizer(const OptimizerConfig& optimizer, plan::Options& options) {
  using enum plan::OptimizerKind;
  const std::string& name = optimizer.name;
  options.optimizer = name == "lars" ? lars : name == "adamw" ? adamw : name == "lamb" ? lamb : sgd;
  options.momentum = static_cast<float>(optimizer.momentum);
  options.nesterov = optimizer.nesterov;
  options.weight_decay = static_cast<float>(optimizer.weight_decay);
  options.lars_trust = static_cast<float>(optimizer.lars_trust);
  options.beta1 = static_cast<float>(optimizer.betas[0]);
  options.beta2 = static_cast<float>(optimizer.betas[1]);
  const double usual = options.optimizer == lamb ? 1e-6 : 1e-8;
  options.epsilon = static_cast<float>(optimizer.epsilon > 0 ? optimizer.epsilon : usual);
  options.clip_norm = static_cast<float>(optimizer.clip_norm);
  if (optimizer.head_lr > 0) options.head_rate = static_cast<float>(optimizer.head_lr / optimizer.lr);
  options.layer_decay = static_cast<float>(optimizer.layer_decay);
}

}  // namespace

std::int64_t image_size_of(const plan::Plan& plan) {
  return plan.graph().tensor(plan.model.images).shape.h();
}

plan::Options train_plan_options(const Config& config, graph::DType dtype, std::int64_t classes,
                                 std::int64_t batch) {
  plan::Options options;
  options.model.model = config.model.name;
  options.model.classes = classes;
  options.model.image_size = train_sizes(config).front();
  options.model.batch = batch;
  options.model.dtype = dtype;
  options.model.label_smoothing = static_cast<float>(config.optimizer.label_smoothing);
  options.model.mixed_labels = mix_options(config.augment).any();
  options.model.frozen_parts = frozen_parts(config.optimizer);
  set_optimizer(config.optimizer, options);
  options.accumulate = static_cast<int>(config.optimizer.accumulate);
  options.ema = config.model.ema;
  options.fuse = !config.device.no_fuse;
  options.recompute = recompute_of(config.device.recompute);
  options.bucket_bytes = static_cast<std::size_t>(config.comm.bucket_mb * (1 << 20));
  options.all_reduce = config.ranks > 1 || config.comm.when_alone;
  options.gradient_wire = graph::parse_dtype(config.comm.grad_dtype);
  options.synchronised_norms = config.comm.sync_bn && config.ranks > 1;
  return options;
}

plan::Options eval_plan_options(const Config& config, graph::DType dtype, std::int64_t classes,
                                std::int64_t batch) {
  plan::Options options = train_plan_options(config, dtype, classes, batch);
  options.model.image_size = config.model.image_size;
  options.model.training = false;
  options.model.frozen_parts = 0;
  options.model.label_smoothing = 0;
  options.model.mixed_labels = false;
  options.optimizer = plan::OptimizerKind::none;
  options.all_reduce = options.synchronised_norms = false;
  options.accumulate = 1;
  options.ema = false;
  return options;
}

Plans make_plans(const Config& config, const plan::Capabilities& backend, graph::DType dtype,
                 std::int64_t classes, std::int64_t batch) {
  Plans plans;
  plan::Options train = train_plan_options(config, dtype, classes, batch);
  for (const std::int64_t size : train_sizes(config)) {
    train.model.image_size = size;
    auto plan = std::make_shared<plan::Plan>(make_plan(train, backend));
    if (plans.train == nullptr)
      plans.train = std::move(plan);
    else
      plans.smaller.push_back(std::move(plan));
  }
  plans.eval =
      std::make_shared<plan::Plan>(make_plan(eval_plan_options(config, dtype, classes, batch), backend));
  return plans;
}

}  // namespace redline::train
