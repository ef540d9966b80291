#include "train/forward.h"

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "train/batch_input.h"
#include "train/setup.h"

namespace redline::train {
namespace {

constexpr std::int64_t kDefaultImageSize = 224;

// The configuration that the pieces of training take, with what matters to a forward pass.
Config forward_config(const TrainedModel& model, const ForwardOptions& options) {
  Config config;
  config.model.name = model.weights.model;
  config.model.classes = model.weights.classes;
  config.model.image_size = options.image_size.value_or(model.image_size.value_or(kDefaultImageSize));
  config.data.path = "images";  // named where they are opened
  config.data.workers = options.workers;
  config.data.crop_pct = options.crop_pct.value_or(model.crop_pct);
  config.data.max_bad = options.max_bad;
  if (model.config) config.data.interpolation = model.config->data.interpolation;
  config.optimizer.batch_size = options.batch_size;
  config.device = options.device;
  return config;
}

}  // namespace

ForwardPass::ForwardPass(const TrainedModel& model, const ForwardOptions& options,
                         const std::atomic<bool>& stop)
    : config_(forward_config(model, options)), stop_(stop) {
  const bool choose = options.device.dtype.empty() && !options.device.amp && model.config.has_value();
  if (choose) config_.device.dtype = model.config->device.dtype;
  validate(config_);
  backend_ = open_device(config_, nullptr, &stop_);
  graph::DType dtype{};
  try {
    dtype = resolve_dtype(config_, *backend_).dtype;
  } catch (const UnavailableError&) {
    if (!choose) throw;
    const std::string trained = std::exchange(config_.device.dtype, "");
    dtype = resolve_dtype(config_, *backend_).dtype;
    log_info("the network was trained in {}, which {} does not support: it computes in {}", trained,
             backend_->description(), graph::name_of(dtype));
  }
  dtype_ = graph::name_of(dtype);
  const auto plan = std::make_shared<plan::Plan>(
      make_plan(eval_plan_options(config_, dtype, model.weights.classes, options.batch_size), *backend_));
  const auto state = backend_->make_state();
  executable_ = backend_->compile(plan, state);
  write_weights(model.weights, *state);
  logits_.resize(static_cast<std::size_t>(plan->graph().tensor(plan->model.logits).shape.elements()));
}

ForwardPass::~ForwardPass() = default;

std::string ForwardPass::device() const { return backend_->description(); }

std::size_t ForwardPass::classes() const {
  return logits_.size() / static_cast<std::size_t>(config_.optimizer.batch_size);
}

std::unique_ptr<data::Loader> ForwardPass::batches(std::shared_ptr<const data::RecordSource> records) const {
  return evaluation_batches(config_, *backend_, std::move(records));
}

std::optional<std::span<const float>> ForwardPass::run(const data::Batch& batch) {
  if (stop_.load(std::memory_order_relaxed)) return {};
  write_batch(*executable_, batch);
  try {
    executable_->run(backend::Section::compute);
  } catch (const backend::Abandoned&) {
    return {};
  }
  executable_->request_metrics();
  const auto metrics = executable_->take_metrics(/*wait=*/true);
  check(metrics.has_value(), "a batch gave no numbers");
  sums_ += metrics->sums;
  executable_->read(executable_->plan().model.logits, logits_);
  return logits_;
}

}  // namespace redline::train
