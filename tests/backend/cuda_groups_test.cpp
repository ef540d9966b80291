// What the cuda backend does in one kernel, found in the plans of training. Needs no GPU.
#include "backend/cuda/groups.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "backend/cuda/kernels/gemm.h"
#include "base/error.h"
#include "fused_groups.h"
#include "graph/operands.h"
#include "plan/fakes.h"

namespace redline::backend::cuda {
namespace {

using graph::OpKind;
using Counts = std::map<std::string, int>;

// As the backend answers the planner.
struct Gpu : plan::FakeBackend {
  explicit Gpu(bool hopper) {
    sums = true;
    side_stream = 2;
    rows = cuda::group_rows(hopper);
  }
  graph::DType weight_gradient(graph::DType activations) const override { return activations; }
  bool synchronises_norms() const override { return true; }
};

plan::Options training(const std::string& model) {
  plan::Options options = plan::small(model);
  options.model.dtype = graph::DType::f16;
  options.model.image_size = 224;
  return options;
}

Counts count(const plan::Plan& plan) {
  Counts counts;
  for (const plan::Group& group : plan.groups) {
    if (!group.name.empty()) ++counts[group.name];
  }
  return counts;
}

// Without a row of tests, a fused kernel is compared with nothing.
TEST(CudaGroups, HaveARowOfTestsEach) {
  std::vector<std::string> rows, tested;
  for (const plan::GroupRow& row : group_rows(true)) rows.push_back(row.name);
  for (const cases::FusedGroup& group : cases::fused_groups()) {
    if (*group.name != '\0') tested.emplace_back(group.name);
  }
  EXPECT_EQ(tested, rows);
}

TEST(CudaGroups, OfResNet50OnHopper) {
  Counts expected;
  for (const cases::FusedGroup& group : cases::fused_groups()) {
    if (group.in_resnet50 > 0) expected[group.name] = group.in_resnet50;
  }
  EXPECT_EQ(count(plan::make_plan(training("resnet50"), Gpu(true))), expected);
}

TEST(CudaGroups, OnOtherGpus) {
  const Counts expected = {{"norm_act", 44}, {"pool_gradient", 1}, {"weight_gradient", 53}, {"update", 1}};
  EXPECT_EQ(count(plan::make_plan(training("resnet50"), Gpu(false))), expected);
}

TEST(CudaGroups, InFp32HaveNoKernelsOfSixteenBits) {
  plan::Options options = training("resnet50");
  options.model.dtype = graph::DType::f32;
  EXPECT_EQ(count(plan::make_plan(options, Gpu(true))), count(plan::make_plan(options, Gpu(false))));
}

// As when a plan was made for another backend.
TEST(CudaGroups, ThatAreUnknownAreNamed) {
  const auto gpu = backend::make_backend({.device = "cuda"});
  cases::CaseGraph graph(graph::DType::f16);
  const cases::SequenceCase& sequence = cases::fused_groups().front().sequences.front();
  sequence.make(graph, sequence.images.front());
  plan::Plan plan = plan::make_plan(graph.take(), *gpu);
  plan.groups.front().name = "sorcery";
  try {
    gpu->compile(std::make_shared<plan::Plan>(std::move(plan)), gpu->make_state());
    FAIL() << "compiled a group that no row describes";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("'sorcery'"), std::string::npos) << error.what();
  }
}

// What a step at batch 256 needs, in GiB.
TEST(CudaGroups, RecomputingSavesMemory) {
  const auto need = [](plan::Recompute what) {
    plan::Options options = training("resnet50");
    options.model.batch = 256;
    options.model.classes = 1000;
    options.recompute = what;
    return static_cast<double>(plan::memory_use(plan::make_plan(options, Gpu(true))).total()) / 0x1p30;
  };
  EXPECT_NEAR(need(plan::Recompute::none), 9.73, 0.05);
  EXPECT_NEAR(need(plan::Recompute::activations), 8.75, 0.05);
  EXPECT_NEAR(need(plan::Recompute::blocks), 7.27, 0.05);
}

// Kernels of our own know no groups of channels.
TEST(CudaGroups, LeaveConvolutionsWithGroupsToCudnn) {
  const plan::Plan plan = plan::make_plan(training("resnext50_32x4d"), Gpu(true));
  int with_groups = 0;
  for (const plan::Group& group : plan.groups) {
    for (const int position : group.ops) {
      const graph::Op& op = plan.graph().ops()[static_cast<std::size_t>(position)];
      const bool weights = op.kind == OpKind::conv_grad_weight;
      if (!weights && op.kind != OpKind::conv && op.kind != OpKind::conv_grad_input) continue;
      if (op.attr<graph::ConvAttr>().groups == 1) continue;
      ++with_groups;
      EXPECT_EQ(group.name, weights ? "weight_gradient" : "") << op.name;
    }
  }
  EXPECT_EQ(with_groups, 3 * 16);
  EXPECT_GT(count(plan)["join"], 0) << "its 1x1 convolutions have none";
}

TEST(CudaGroups, OneLaunchIsAnUpdate) {
  for (const auto& [optimizer, launches] :
       {std::pair(plan::OptimizerKind::adamw, 1), std::pair(plan::OptimizerKind::lamb, 2)}) {
    plan::Options options = training("resnet50");
    options.optimizer = optimizer;
    options.layer_decay = 0.75F;
    EXPECT_EQ(count(plan::make_plan(options, Gpu(true))).at("update"), launches);
  }
}

// Ranks that exchange gradients, and batches whose gradients are added up, change nothing about groups.
TEST(CudaGroups, AreTheSameForRanksAndAccumulation) {
  const Counts expected = count(plan::make_plan(training("resnet50"), Gpu(true)));
  for (const bool ranks : {false, true}) {
    plan::Options options = training("resnet50");
    options.all_reduce = options.synchronised_norms = ranks;
    options.accumulate = ranks ? 1 : 4;
    EXPECT_EQ(count(plan::make_plan(options, Gpu(true))), expected) << ranks;
  }
}

// The rows of a tile that have something lie one after the other, and a tile of their own has room for them.
TEST(SparseRows, FitIntoATile) {
  for (int h = 4; h < 20; ++h) {
    for (int w = 4; w < 260; ++w) {
      const SparseRows rows{h, w};
      int found = 0;
      for (int row = 0; row < 3 * h * w; ++row) {
        ASSERT_EQ(rows.before(row), found) << h << " x " << w << ", row " << row;
        if (row % 128 == 0) {
          ASSERT_LE(rows.before(row + 128) - found, SparseRows::kMost) << h << " x " << w;
        }
        if (rows.has(row)) ++found;
      }
    }
  }
}

// A group that does not store an activation goes with one that recomputes it.
TEST(CudaGroups, RecomputeWhatIsNotStored) {
  const plan::Plan plan = plan::make_plan(training("resnet50"), Gpu(true));
  int recomputing = 0;
  for (const plan::Group& group : plan.groups) {
    for (const int position : group.recomputes) {
      const graph::Op& act = plan.graph().ops()[static_cast<std::size_t>(position)];
      EXPECT_EQ(act.kind, OpKind::affine_act);
      EXPECT_EQ(plan.placement(act.outputs[graph::operands::AffineAct::z]).region, plan::Region::none);
      ++recomputing;
    }
  }
  EXPECT_EQ(recomputing, 6);
}

}  // namespace
}  // namespace redline::backend::cuda
