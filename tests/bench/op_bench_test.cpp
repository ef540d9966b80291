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
  for (const plan::Work& work : plan::work_of(plan, plan::each_alone(plan.graph()))) expected += work.flops;
  for (const OpTiming& row : bench_ops({options, "", 1, true}, *backend_, kGoOn)) {
    found += row.flops * row.count;
    EXPECT_GT(row.bytes, 0) << row.description;
    EXPECT_GT(row.seconds, 0) << row.description;
  }
  EXPECT_NEAR(found, expected, 1e-9 * expected);
}

TEST_F(OpBenchTest, OneThatIsRepeatedOftenIsStoppedBetweenRepetitions) {
  int asked = 0;
  const auto rows = bench_ops({training("resnet18", 2, 32), "", 100, false}, *backend_,
                              [&](std::int64_t, std::int64_t) { return ++asked < 3; });
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(rows.empty());
}

#ifdef REDLINE_TEST_CUDA
TEST_F(OpBenchTest, EveryOpIsDoneOnceAndOnlyActivationsAreRecomputed) {
  for (const char* model : {"resnet18", "resnet50"}) {
    const plan::Options options = training(model, 32, 64);
    const plan::Plan plan = plan::make_plan(options, *backend_);
    std::map<int, int> done, again;
    for (const plan::Group& group : plan.groups) {
      for (const int op : group.ops) ++done[op];
      for (const int op : group.recomputes) ++again[op];
    }
    for (std::size_t i = 0; i < plan.graph().ops().size(); ++i) {
      const graph::Op& op = plan.graph().ops()[i];
      EXPECT_EQ(done[static_cast<int>(i)], 1) << name_of(op.kind) << " " << op.name;
      EXPECT_LE(again[static_cast<int>(i)], op.kind == OpKind::affine_act ? 1 : 0)
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
  const auto times = time_ops_in_steps(options, plan, *backend_, 5, kGoOn);
  const std::vector<plan::Work> work = plan::work_of(*plan, plan->groups);
  int large = 0;
  for (std::size_t i = 0; i < work.size(); ++i) {
    if (work[i].bytes < kBeyondCaches) continue;
    ++large;
    const plan::Group& group = plan->groups[i];
    const graph::Op& lead =
        plan->graph().ops()[static_cast<std::size_t>(plan::lead_of(plan->graph(), group))];
    EXPECT_LE(work[i].bytes / median(times[i]), 1.1 * ceilings.bytes)
        << name_of(lead.kind) << " " << lead.name << plan::others_text(plan->graph(), group);
  }
  EXPECT_GT(large, 20);
}
#endif

}  // namespace
}  // namespace redline::bench
