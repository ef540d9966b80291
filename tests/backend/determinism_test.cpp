// The same seed and thread count give the same bits: training twice, from scratch, ends in the same weights.
// On a GPU only where it was asked for.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace redline::backend
