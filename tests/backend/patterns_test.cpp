// What the cuda backend merges on Hopper: found in the plans of training, with what it reads kept for it.
// Needs no GPU.
#include "backend/cuda/patterns.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "plan/fakes.h"

namespace redline::backend::cuda {
namespace {

// As the backend answers the planner on a Hopper.
struct Hopper : plan::FakeBackend {
  Hopper() {
    sums = true;
    beside = 2;
  }
  graph::DType weight_gradient(graph::DType activations) const override { return activations; }
  bool synchronises_norms() const override { return true; }
  int input_stays(const graph::Graph& graph, int op) const override {
    return ops_merged_after(graph, static_cast<std::size_t>(op));
  }
  bool remakes(const graph::Graph& graph, TensorId id) const override { return is_remade(graph, id); }
};

plan::Options training(const std::string& model) {
  plan::Options options = plan::small(model);
  options.model.dtype = graph::DType::f16;
  return options;
}

// By position.
template <typename Pattern>
std::map<std::size_t, Pattern> all_of(const graph::Graph& graph) {
  std::map<std::size_t, Pattern> found;
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    if (const Pattern pattern(graph, i); pattern) found.emplace(i, pattern);
  }
  return found;
}

std::size_t expansions(const graph::Graph& graph) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    const NormAndUse norm(graph, i);
    if (norm && ActivatedExpansion(graph, i, norm)) ++found;
  }
  return found;
}

TEST(Patterns, AreFoundInResNet50) {
  const plan::Plan plan = plan::make_plan(training("resnet50"), Hopper());
  // Of its stages of 3, 4, 6 and 3 blocks: all joins of the first three but the last, whose next convolution
  // has 512 filters; the last convolutions of the second and third; those of the first, and its shortcut's.
  EXPECT_EQ(all_of<JoinAndConv>(plan.graph()).size(), 12U);
  EXPECT_EQ(all_of<GradientThroughNorm>(plan.graph()).size(), 10U);
  EXPECT_EQ(all_of<WholeGradient>(plan.graph()).size(), 4U);
  EXPECT_EQ(expansions(plan.graph()), 3U);
}

TEST(Patterns, AreNotFoundWhereNothingIsNarrow) {
  plan::Options options = training("resnet50");
  options.model.dtype = graph::DType::f32;
  const plan::Plan plan = plan::make_plan(options, Hopper());
  EXPECT_TRUE(all_of<JoinAndConv>(plan.graph()).empty());
  EXPECT_TRUE(all_of<GradientThroughNorm>(plan.graph()).empty());
}

// All is done in the place of the last of the ops: until then what the first reads is not written over, so
// that nothing keeps the ops from being merged.
TEST(Patterns, KeepWhatTheyRead) {
  for (const bool ranks : {false, true}) {
    SCOPED_TRACE(ranks ? "several ranks" : "alone");
    plan::Options options = training("resnet50");
    options.all_reduce = options.synchronised_norms = ranks;
    const plan::Plan plan = plan::make_plan(options, Hopper());
    const auto stays = [&](TensorId id) { return static_cast<std::size_t>(plan.placement(id).last_op); };
    for (const auto& [position, join] : all_of<JoinAndConv>(plan.graph())) {
      EXPECT_GE(stays(join.act->inputs[0]), position + 1) << join.act->name;
      EXPECT_GE(stays(join.act->inputs[2]), position + 1) << join.act->name;
    }
    for (const auto& [position, way] : all_of<GradientThroughNorm>(plan.graph())) {
      EXPECT_GE(stays(way.apply->inputs[1]), position + GradientThroughNorm::kStep) << way.apply->name;
      const TensorId g = way.apply->inputs[0], dy = way.apply->outputs[0];
      const bool in_place = plan.placement(dy).offset == plan.placement(g).offset;  // there as long, then
      EXPECT_GE(stays(in_place ? dy : g), position + GradientThroughNorm::kStep) << way.apply->name;
    }
  }
}

}  // namespace
}  // namespace redline::backend::cuda
