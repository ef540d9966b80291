#include "bench/op_bench.h"

#include <algorithm>
#include <map>
#include <memory>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/statistics.h"
#include "bench/step_times.h"
#include "plan/traffic.h"
#include "profile/ceilings.h"

namespace redline::bench {
namespace {

using graph::OpKind;

#ifdef REDLINE_TEST_CUDA
constexpr const char* kDevice = "cuda";
constexpr graph::DType kType = graph::DType::f16;
#else
constexpr const char* kDevice = "cpu";
constexpr graph::DType kType = graph::DType::f32;
#endif

const auto kGoOn = [](std::int64_t, std::int64_t) { return true; };

class OpBenchTest : public testing::Test {
 protected:
  void SetUp() override {
    backend::DeviceOptions device;
    device.device = kDevice;
    device.threads = 2;
    try {
      backend_ = backend::make_backend(device);
    } catch (const UnavailableError& reason) {
      GTEST_SKIP() << reason.what();
    }
  }
  static plan::Options training(const char* model, std::int64_t batch, int size) {
    plan::Options options;
    options.model.model = model;
    options.model.batch = batch;
    options.model.image_size = size;
    options.model.dtype = kType;
    return options;
  }
  std::unique_ptr<backend::Backend> backend_;
};

TEST_F(OpBenchTest, RowsHaveAllWorkOfTheStep) {
  const plan::Options options = training("resnet18", 2, 32);
  double expected = 0, found = 0;
  const plan::Plan plan = plan::make_plan(options, *backend_);
  for (const plan::Work& work : plan::work_of(plan, plan::each_alone(plan))) expected += work.flops;
  for (const OpTiming& row : bench_ops({options, "", 1, true}, *backend_, kGoOn)) {
    found += row.flops * row.count;
    EXPECT_GT(row.bytes, 0) << row.description;
    EXPECT_GT(row.seconds, 0) << row.description;
  }
  EXPECT_NEAR(found, expected, 1e-9 * expected);
}

#ifdef REDLINE_TEST_CUDA
TEST_F(OpBenchTest, EveryOpIsDoneAndOnlyActivationsAgain) {
  for (const char* model : {"resnet18", "resnet50"}) {
    const plan::Options options = training(model, 32, 64);
    const auto plan = std::make_shared<plan::Plan>(plan::make_plan(options, *backend_));
    const auto groups = backend_->compile(plan, backend_->make_state())->groups();
    std::map<int, int> done;
    for (std::size_t i = 0; i < groups.ops.size(); ++i) {
      const std::vector<int>& group = groups.ops[i];
      EXPECT_TRUE(group.empty() || std::ranges::count(group, static_cast<int>(i)) == 1) << i;
      for (const int op : group) ++done[op];
    }
    for (std::size_t i = 0; i < groups.ops.size(); ++i) {
      const graph::Op& op = plan->graph().ops()[i];
      EXPECT_GE(done[static_cast<int>(i)], 1) << name_of(op.kind) << " " << op.name;
      EXPECT_LE(done[static_cast<int>(i)], op.kind == OpKind::affine_act ? 2 : 1)
          << name_of(op.kind) << " " << op.name;
    }
  }
}

// Bytes are the least that has to move, so that nothing can be faster than memory. A tenth is allowed, as the
// ceiling is that of one kernel and one measurement; what a cache may hold is left out.
TEST_F(OpBenchTest, NothingIsFasterThanMemory) {
  constexpr double kBeyondCaches = 200e6;  // bytes
  const plan::Options options = training("resnet50", 256, 224);
  const auto plan = std::make_shared<plan::Plan>(plan::make_plan(options, *backend_));
  const profile::Ceilings ceilings = profile::measure_ceilings(*backend_, kType);
  const auto [times, groups] = time_ops_in_steps(options, plan, *backend_, 5, kGoOn);
  const std::vector<plan::Work> work = plan::work_of(*plan, groups);
  const std::vector<std::vector<int>> named = plan::named_ops(plan->graph(), groups);
  int large = 0;
  for (std::size_t i = 0; i < work.size(); ++i) {
    const graph::Op& op = plan->graph().ops()[i];
    if (groups.ops[i].empty()) {
      EXPECT_EQ(median(times[i]), 0) << name_of(op.kind) << " " << op.name;
    }
    if (work[i].bytes < kBeyondCaches) continue;
    ++large;
    const graph::Op& first = plan->graph().ops()[static_cast<std::size_t>(named[i].front())];
    EXPECT_LE(work[i].bytes / median(times[i]), 1.1 * ceilings.bytes)
        << name_of(first.kind) << " " << first.name << plan::others_text(plan->graph(), named[i]);
  }
  EXPECT_GT(large, 20);
}
#endif

}  // namespace
}  // namespace redline::bench
