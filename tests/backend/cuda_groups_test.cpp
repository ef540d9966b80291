// What the cuda backend does in one kernel, found in the plans of training. Needs no GPU.
#include "backend/cuda/group_table.h"

#include <algorithm>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "backend/cuda/kernels/gemm.h"
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

TEST(CudaGroups, OfResNet50OnHopper) {
  const plan::Plan plan = plan::make_plan(training("resnet50"), Gpu(true));
  // Of its stages of 3, 4, 6 and 3 blocks:
  const Counts expected = {
      {groups::kExpandGradient, 4},      // the last convolutions of the first stage, and its shortcut's
      {groups::kNormGradient, 10},       // the last convolutions of the second and third stage
      {groups::kTwoNormSums, 4},         // the first convolutions of each stage's second block
      {groups::kGradientSums, 8},        // and of the later blocks
      {groups::kSparseGradientSums, 3},  // those of the later stages' first blocks, with the shortcut's
      {groups::kActivatedExpand, 3},     // the last convolutions of the first stage
      {groups::kActivatedConv, 4},       // those of the second
      {groups::kJoin, 12},               // the ends of all blocks of the first three stages but the last
      // The 3x3 convolutions of the first three stages, but for those of stride 2.
      {groups::kActivatedConv3x3, 11},
      {groups::kGradientSums3x3, 11},
      {groups::kWeightGradient3x3, 3},  // of the first stage
      {groups::kNormAct, 17},           // the other norms of blocks, and the last blocks' ends
      {groups::kPoolGradient, 1},       // the stem
      {groups::kWeightGradient, 46},    // all others but those of the expand gradients
      {groups::kUpdate, 1},
  };
  EXPECT_EQ(count(plan), expected);
}

TEST(CudaGroups, OnOtherGpus) {
  const Counts found = count(plan::make_plan(training("resnet50"), Gpu(false)));
  EXPECT_EQ(found.count(groups::kExpandGradient) + found.count(groups::kNormGradient) +
                found.count(groups::kGradientSums) + found.count(groups::kActivatedExpand) +
                found.count(groups::kJoin) + found.count(groups::kActivatedConv3x3) +
                found.count(groups::kGradientSums3x3) + found.count(groups::kWeightGradient3x3),
            0U);
  EXPECT_EQ(found.at(groups::kWeightGradient), 53);
  EXPECT_EQ(found.at(groups::kPoolGradient), 1);
}

TEST(CudaGroups, InFp32HaveNoKernelsOfSixteenBits) {
  plan::Options options = training("resnet50");
  options.model.dtype = graph::DType::f32;
  EXPECT_EQ(count(plan::make_plan(options, Gpu(true))).count(groups::kJoin), 0U);
  EXPECT_EQ(count(plan::make_plan(options, Gpu(true))).count(groups::kNormGradient), 0U);
  EXPECT_EQ(count(plan::make_plan(options, Gpu(true))).count(groups::kGradientSums), 0U);
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
      EXPECT_EQ(group.name, weights ? groups::kWeightGradient : "") << op.name;
    }
  }
  EXPECT_EQ(with_groups, 3 * 16);
  EXPECT_GT(count(plan)[groups::kJoin], 0) << "its 1x1 convolutions have none";
}

TEST(CudaGroups, OneLaunchIsAnUpdate) {
  for (const auto& [optimizer, launches] :
       {std::pair(plan::OptimizerKind::adamw, 1), std::pair(plan::OptimizerKind::lamb, 2)}) {
    plan::Options options = training("resnet50");
    options.optimizer = optimizer;
    options.layer_decay = 0.75F;
    EXPECT_EQ(count(plan::make_plan(options, Gpu(true))).at(groups::kUpdate), launches);
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
