#include "plan/fuse.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "fakes.h"

namespace redline::plan {
namespace {

using graph::kNone;
using graph::Op;
using graph::OpKind;
using graph::TensorId;

std::map<OpKind, int> count_kinds(const graph::Graph& graph) {
  std::map<OpKind, int> counts;
  for (const Op& op : graph.ops()) ++counts[op.kind];
  return counts;
}

Options options_for(const std::string& model, bool training = true) {
  Options options;
  options.model.model = model;
  options.model.image_size = 64;
  options.model.batch = 2;
  options.model.training = training;
  options.optimizer = training ? OptimizerKind::sgd : OptimizerKind::none;
  return options;
}

TEST(Fuse, ResNet50LeavesNoPlainNormOrActivation) {
  const Plan plan = make_plan(options_for("resnet50"), FakeBackend{});
  const auto counts = count_kinds(plan.graph());
  for (OpKind gone :
       {OpKind::batch_norm, OpKind::relu, OpKind::max_pool, OpKind::batch_norm_grad, OpKind::relu_grad}) {
    EXPECT_FALSE(counts.contains(gone)) << name_of(gone);
  }
  EXPECT_EQ(counts.at(OpKind::norm_stats), 53);
  EXPECT_EQ(counts.at(OpKind::affine_act), 48) << "32 inside blocks, 16 that end them";
  EXPECT_EQ(counts.at(OpKind::affine_pool), 1);
  EXPECT_EQ(counts.at(OpKind::norm_grad_stats), 53);
  EXPECT_EQ(counts.at(OpKind::norm_grad_apply), 53);
  // Joins are in affine_act and sums of gradients in norm_grad_stats, but for what the first block gets from
  // the pool.
  EXPECT_EQ(counts.at(OpKind::add), 1);
}

TEST(Fuse, ShortcutsAreReadWhereTheyJoin) {
  const Plan plan = make_plan(options_for("resnet18"), FakeBackend{});
  int identity = 0, projected = 0;
  for (const Op& op : plan.graph().ops()) {
    if (op.kind != OpKind::affine_act || op.inputs[2] == kNone) continue;
    (op.inputs[3] == kNone ? identity : projected) += 1;
    EXPECT_NE(op.outputs[1], kNone) << op.name << ": backward needs the mask";
  }
  EXPECT_EQ(identity, 5);
  EXPECT_EQ(projected, 3);
}

TEST(Fuse, EvaluationKeepsNoMasks) {
  const Plan plan = make_plan(options_for("resnet18", false), FakeBackend{});
  for (const Op& op : plan.graph().ops()) {
    if (op.kind == OpKind::affine_act) {
      EXPECT_EQ(op.outputs[1], kNone) << op.name;
    }
    if (op.kind == OpKind::norm_stats) {
      EXPECT_EQ(op.outputs[1], kNone) << op.name;
    }
  }
}

TEST(Fuse, AsksTheBackend) {
  FakeBackend no_pool;
  no_pool.pool = false;
  auto counts = count_kinds(make_plan(options_for("resnet18"), no_pool).graph());
  EXPECT_FALSE(counts.contains(OpKind::affine_pool));
  EXPECT_EQ(counts.at(OpKind::max_pool), 1);

  FakeBackend nothing;
  nothing.fused = false;
  counts = count_kinds(make_plan(options_for("resnet18"), nothing).graph());
  EXPECT_EQ(counts.at(OpKind::batch_norm), 20);
  EXPECT_FALSE(counts.contains(OpKind::norm_stats));

  FakeBackend sums;
  sums.sums = true;
  const Plan plan = make_plan(options_for("resnet18"), sums);
  for (const Op& op : plan.graph().ops()) {
    if (op.kind == OpKind::conv) {
      EXPECT_EQ(op.outputs.size(), 2U) << op.name;
    }
    if (op.kind == OpKind::norm_stats) {
      EXPECT_EQ(op.inputs.size(), 6U) << op.name;
    }
  }
}

TEST(Fuse, CanBeTurnedOff) {
  Options options = options_for("resnet18");
  options.fuse = false;
  const Plan plan = make_plan(options, FakeBackend{});
  EXPECT_EQ(plan.fused_ops, 0);
  EXPECT_TRUE(plan.fusions.empty());
  EXPECT_EQ(count_kinds(plan.graph()).at(OpKind::batch_norm), 20);
}

}  // namespace
}  // namespace redline::plan
