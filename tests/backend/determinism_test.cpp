// The same seed and thread count give the same bits: training on the CPU twice, from scratch, ends in the
// same weights.
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "base/random.h"
#include "graph/models/resnet.h"

namespace redline::backend {
namespace {

constexpr int kSteps = 3;

plan::Options small_resnet(graph::DType dtype) {
  plan::Options options;
  options.model.model = "resnet50";
  options.model.classes = 10;
  options.model.image_size = 48;
  options.model.batch = 4;
  options.model.dtype = dtype;
  options.model.label_smoothing = 0.1F;
  options.weight_decay = 1e-4F;
  return options;
}

// Every persistent tensor after a few steps on pictures of random bytes.
std::vector<float> train(graph::DType dtype, std::uint64_t seed) {
  const plan::Options options = small_resnet(dtype);
  DeviceOptions device;
  device.threads = 2;
  const std::unique_ptr<Backend> backend = make_backend(device);
  const auto plan = std::make_shared<plan::Plan>(plan::make_plan(options, *backend));
  const auto state = backend->make_state();
  const auto step = backend->compile(plan, state);
  for (const std::string& name : state->names()) {
    const graph::Tensor& tensor = state->tensor(name);
    if (tensor.kind == graph::TensorKind::momentum || tensor.kind == graph::TensorKind::scaler) continue;
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()));
    graph::initial_value(tensor, seed, false, options.model.model, values);
    state->write(name, values);
  }
  Random random(seed);
  std::vector<std::uint8_t> images(static_cast<std::size_t>(4 * 48 * 48 * 3));
  const std::vector<std::int32_t> labels{0, 3, 7, 9};
  const float scalars[graph::kStepScalars] = {0.05F, 1.0F, 0.0F, 0.0F};
  for (int i = 0; i < kSteps; ++i) {
    for (std::uint8_t& byte : images) byte = static_cast<std::uint8_t>(random.next_u32());
    step->write_input(plan->model.images, images.data(), images.size());
    step->write_input(plan->model.labels, labels.data(), labels.size() * sizeof labels[0]);
    step->write_input(plan->model.scalars, scalars, sizeof scalars);
    step->run(Section::compute);
    step->run(Section::update);
  }
  std::vector<float> all;
  for (const std::string& name : state->names()) {
    const std::size_t before = all.size();
    all.resize(before + static_cast<std::size_t>(state->tensor(name).shape.elements()));
    state->read(name, std::span(all).subspan(before));
  }
  return all;
}

class Determinism : public testing::TestWithParam<graph::DType> {};

TEST_P(Determinism, TwoRunsEndInTheSameBits) {
  if (!make_backend({})->supports(graph::OpKind::conv, GetParam())) GTEST_SKIP() << "not in this dtype";
  const std::vector<float> once = train(GetParam(), 5);
  EXPECT_TRUE(once == train(GetParam(), 5));
  EXPECT_FALSE(once == train(GetParam(), 6));
}

INSTANTIATE_TEST_SUITE_P(Cpu, Determinism, testing::Values(graph::DType::f32, graph::DType::bf16),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace redline::backend
