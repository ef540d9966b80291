#include "small_training.h"

#include "graph/models/resnet.h"

namespace redline::backend {

plan::Options small_resnet(graph::DType dtype) {
  plan::Options options;
  options.model.model = "resnet50";
  options.model.classes = kSmallClasses;
  options.model.image_size = kSmallSize;
  options.model.batch = kSmallBatch;
  options.model.dtype = dtype;
  options.model.label_smoothing = 0.1F;
  options.weight_decay = 1e-4F;
  return options;
}

SmallTraining::SmallTraining(const DeviceOptions& device, const plan::Options& options, std::uint64_t seed)
    : options_(options), backend_(make_backend(device)), state_(backend_->make_state()), random_(seed) {
  executable_ = backend_->compile(std::make_shared<plan::Plan>(plan::make_plan(options, *backend_)), state_);
  for (const std::string& name : state_->names()) {
    const graph::Tensor& tensor = state_->tensor(name);
    if (tensor.kind != graph::TensorKind::parameter && tensor.kind != graph::TensorKind::statistic) continue;
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()));
    graph::initial_value(tensor, seed, false, options.model.model, values);
    state_->write(name, values);
  }
}

void SmallTraining::step(const std::vector<std::int32_t>& labels) {
  const graph::Model& model = executable_->plan().model;
  std::vector<std::uint8_t> images(
      static_cast<std::size_t>(model.graph.tensor(model.images).shape.elements()));
  for (std::uint8_t& byte : images) byte = static_cast<std::uint8_t>(random_.next_u32());
  const float scalars[graph::kStepScalars] = {0.05F, 1.0F, 0.9F, 0.0F, static_cast<float>(++steps_)};
  executable_->write_input(model.images, images.data(), images.size());
  executable_->write_input(model.labels, labels.data(), labels.size() * sizeof labels[0]);
  executable_->write_input(model.scalars, scalars, sizeof scalars);
  executable_->run(Section::step);
}

Metrics SmallTraining::metrics() {
  executable_->request_metrics();
  return executable_->take_metrics(/*wait=*/true).value();
}

SmallTraining::Values SmallTraining::values() const {
  Values all;
  for (const std::string& name : state_->names()) {
    std::vector<float>& values = all[name];
    values.resize(static_cast<std::size_t>(state_->tensor(name).shape.elements()));
    state_->read(name, values);
  }
  return all;
}

}  // namespace redline::backend
