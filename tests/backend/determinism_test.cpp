// The same seed and thread count give the same bits: training twice, from scratch, ends in the same weights.
// On a GPU only where it was asked for.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "small_training.h"

namespace redline::backend {
namespace {

constexpr int kSteps = 3;

DeviceOptions tested_device() {
  DeviceOptions device;
  device.threads = 2;
#ifdef REDLINE_TEST_CUDA
  device.device = "cuda";
  device.deterministic = true;
#endif
  return device;
}

SmallTraining::Values train(graph::DType dtype, std::uint64_t seed) {
  SmallTraining training(tested_device(), small_resnet(dtype), seed);
  for (int i = 0; i < kSteps; ++i) training.step();
  return training.values();
}

class Determinism : public testing::TestWithParam<graph::DType> {};

TEST_P(Determinism, TwoRunsEndInTheSameBits) {
  try {
    if (!make_backend(tested_device())->supports(graph::OpKind::conv, GetParam()))
      GTEST_SKIP() << "not in this dtype";
  } catch (const UnavailableError& e) {
    GTEST_SKIP() << e.what();
  }
  const auto once = train(GetParam(), 5);
  EXPECT_TRUE(once == train(GetParam(), 5));
  EXPECT_FALSE(once == train(GetParam(), 6));
}

#ifdef REDLINE_TEST_CUDA
const auto kTypes = testing::Values(graph::DType::f32, graph::DType::bf16, graph::DType::f16);
#else
const auto kTypes = testing::Values(graph::DType::f32, graph::DType::bf16);
#endif
INSTANTIATE_TEST_SUITE_P(Device, Determinism, kTypes,
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

#ifdef REDLINE_TEST_CUDA
// Whether kernels wait for all that they must is a matter of timing: only a device that is as full as in a
// real training shows it, and not in every step.
struct Real {
  const char* model;
  std::int64_t image_size, batch;
  graph::DType dtype;
};

class RepeatedStep : public testing::TestWithParam<Real> {
 protected:
  static std::vector<std::vector<float>> gradients(const Executable& executable) {
    std::vector<std::vector<float>> all;
    const graph::Graph& graph = executable.plan().graph();
    for (graph::TensorId id = 0; id < static_cast<graph::TensorId>(graph.tensors().size()); ++id) {
      if (executable.plan().placement(id).region != plan::Region::bucket) continue;
      all.emplace_back(static_cast<std::size_t>(graph.tensor(id).shape.elements()));
      executable.read(id, all.back());
    }
    return all;
  }
};

TEST_P(RepeatedStep, GivesTheSameBitsEveryTime) {
  constexpr int kRepeats = 50;
  const Real& real = GetParam();
  plan::Options options;
  options.model.model = real.model;
  options.model.image_size = real.image_size;
  options.model.batch = real.batch;
  options.model.dtype = real.dtype;
  std::optional<SmallTraining> training;
  try {
    training.emplace(tested_device(), options, 5);
  } catch (const UnavailableError& e) {
    GTEST_SKIP() << e.what();
  }
  training->step(std::vector<std::int32_t>(static_cast<std::size_t>(real.batch), 7));
  Executable& executable = training->executable();
  const auto run = [&] {
    executable.run(Section::compute);  // of the same images, and no update
    return std::pair(gradients(executable), training->metrics().sums);
  };
  const auto first = run();
  ASSERT_FALSE(first.first.empty());
  int others = 0;
  for (int i = 1; i < kRepeats; ++i) others += run() == first ? 0 : 1;
  EXPECT_EQ(others, 0) << "of " << kRepeats;
}

INSTANTIATE_TEST_SUITE_P(Device, RepeatedStep,
                         testing::Values(Real{"resnet18", 192, 128, graph::DType::f16},
                                         Real{"resnet50", 224, 64, graph::DType::f16},
                                         Real{"resnet50", 224, 64, graph::DType::bf16}),
                         [](const auto& tested) {
                           return tested.param.model + ("_" + std::string(name_of(tested.param.dtype)));
                         });
#endif

}  // namespace
}  // namespace redline::backend
