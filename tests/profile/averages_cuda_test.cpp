// What a card tells about itself as a whole, while it does what is known: a product of large matrices.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/error.h"
#include "graph/graph.h"
#include "plan/plan.h"
#include "profile/nvml.h"

namespace redline::profile {
namespace {

TEST(Averages, OfAProductShowTensorCoresAndMemoryAtWork) {
  std::unique_ptr<backend::Backend> backend;
  backend::DeviceOptions device;
  device.device = "cuda";
  try {
    backend = backend::make_backend(device);
  } catch (const UnavailableError& error) {
    GTEST_SKIP() << error.what();
  }
  Nvml nvml(backend->pci_address());
  constexpr std::int64_t kSide = 8192;  // 1.1 TFLOP: over a millisecond on any card
  graph::Graph graph;
  graph::Builder builder(graph, graph::DType::f16, /*training=*/false);
  builder.linear("product",
                 graph.add_tensor({"x", {kSide, kSide}, graph::DType::f16, graph::TensorKind::activation}),
                 kSide);
  const auto executable = backend->compile(
      std::make_shared<plan::Plan>(plan::make_plan(std::move(graph), *backend)), backend->make_state());
  std::vector<backend::OpTime> times;  // asking for them waits for the device
  executable->run(backend::Section::compute, &times);
  if (!nvml.begin_averages()) GTEST_SKIP() << nvml.name() << " has no performance monitoring";
  for (const Stopwatch watch; watch.seconds() < kShortestAverages;)
    executable->run(backend::Section::compute, &times);
  const auto averages = nvml.end_averages();
  ASSERT_TRUE(averages);
  // Nearly always all multiprocessors have work, and most of it is the tensor cores'. Both operands are read
  // and the product written at least once: 0.4 GB in 2 ms or less, a few percent of any card's bandwidth.
  ASSERT_TRUE(averages->sm_pct && averages->tensor_pct && averages->dram_pct);
  EXPECT_GT(*averages->sm_pct, 50);
  EXPECT_GT(*averages->tensor_pct, 30);
  EXPECT_GT(*averages->dram_pct, 1);
  for (const auto& share : {averages->sm_pct, averages->tensor_pct, averages->dram_pct, averages->fp32_pct}) {
    EXPECT_LE(share.value_or(0), 100);
  }
}

}  // namespace
}  // namespace redline::profile
