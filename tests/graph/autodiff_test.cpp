#include "graph/autodiff.h"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/models/resnet.h"

namespace redline::graph {
namespace {

std::map<OpKind, int> count_kinds(const Graph& graph) {
  std::map<OpKind, int> counts;
  for (const Op& op : graph.ops()) ++counts[op.kind];
  return counts;
}

// Every tensor is written before it is read, and once, unless it comes from outside.
void expect_valid_order(const Graph& graph) {
  std::set<TensorId> written;
  for (const Op& op : graph.ops()) {
    for (TensorId id : op.inputs) {
      if (id == kNone || graph.tensor(id).kind == TensorKind::input || is_persistent(graph.tensor(id).kind))
        continue;
      EXPECT_TRUE(written.contains(id))
          << name_of(op.kind) << " '" << op.name << "' reads " << graph.tensor(id).name << " too early";
    }
    for (TensorId id : op.outputs) {
      if (id == kNone) continue;
      EXPECT_TRUE(written.insert(id).second) << graph.tensor(id).name << " is written twice";
    }
  }
}

TEST(Differentiate, ASmallNetwork) {
  Graph graph;
  Builder builder(graph, DType::f32, true);
  TensorId x = builder.normalize_image(builder.input("images", {2, 3, 8, 8}, DType::u8), {});
  x = builder.relu("relu1", builder.batch_norm("bn1", builder.conv("conv1", x, 4, 3, {1, 1})));
  const TensorId branch = builder.batch_norm("bn2", builder.conv("conv2", x, 4, 3, {1, 1}));
  x = builder.relu("relu2", builder.add("add", branch, x));
  const TensorId logits = builder.linear("fc", builder.avg_pool("avg", x), 5);
  builder.softmax_cross_entropy("loss", logits, builder.input("labels", {2}, DType::i32), 0.0F);
  const std::size_t forward = graph.ops().size();
  const Gradients gradients = differentiate(graph);

  expect_valid_order(graph);
  std::set<std::string> named;
  for (const auto& [parameter, gradient] : gradients) {
    EXPECT_EQ(graph.tensor(gradient).name, graph.tensor(parameter).name + ".grad");
    EXPECT_EQ(graph.tensor(gradient).shape, graph.tensor(parameter).shape);
    EXPECT_EQ(graph.tensor(gradient).kind, TensorKind::gradient);
    named.insert(graph.tensor(parameter).name);
  }
  EXPECT_EQ(named, (std::set<std::string>{"conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight",
                                          "bn2.weight", "bn2.bias", "fc.weight", "fc.bias"}));
  const auto counts = count_kinds(graph);
  EXPECT_EQ(counts.at(OpKind::conv_grad_weight), 2);
  EXPECT_EQ(counts.at(OpKind::conv_grad_input), 1) << "images need no gradient";
  EXPECT_EQ(counts.at(OpKind::batch_norm_grad), 2);
  EXPECT_EQ(counts.at(OpKind::relu_grad), 2);
  EXPECT_EQ(counts.at(OpKind::add), 2) << "the block's own, and the sum of the two gradients of its input";
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    EXPECT_EQ(graph.ops()[i].phase, i < forward ? Phase::forward : Phase::backward);
  }
}

TEST(Differentiate, EveryResNet) {
  for (const std::string& name : model_names()) {
    SCOPED_TRACE(name);
    ModelOptions options;
    options.model = name;
    Graph graph = build_resnet(options).graph;
    const auto parameters = graph.of_kind(TensorKind::parameter);
    const Gradients gradients = differentiate(graph);
    EXPECT_EQ(gradients.size(), parameters.size());
    for (TensorId id : parameters) EXPECT_TRUE(gradients.contains(id)) << graph.tensor(id).name;
    expect_valid_order(graph);
    const auto counts = count_kinds(graph);
    EXPECT_EQ(counts.at(OpKind::conv_grad_weight), counts.at(OpKind::conv));
    EXPECT_EQ(counts.at(OpKind::conv_grad_input), counts.at(OpKind::conv) - 1);
    EXPECT_EQ(counts.at(OpKind::batch_norm_grad), counts.at(OpKind::batch_norm));
  }
}

// Nothing is computed backward for the frozen parts: their ops end with the forward pass.
TEST(Differentiate, StopsAtFrozenParts) {
  for (const char* name : {"resnet18", "resnet50", "resnet50d"}) {
    for (int frozen = 1; frozen < static_cast<int>(kParts.size()); ++frozen) {
      SCOPED_TRACE(std::string(name) + ", " + std::to_string(frozen));
      ModelOptions options;
      options.model = name;
      options.frozen_parts = frozen;
      Graph graph = build_resnet(options).graph;
      const Gradients gradients = differentiate(graph);
      expect_valid_order(graph);
      for (TensorId id : graph.of_kind(TensorKind::parameter)) {
        const std::string& parameter = graph.tensor(id).name;
        const bool trained = depth_of(parameter, name).part >= frozen;
        EXPECT_EQ(gradients.contains(id), trained) << parameter;
        EXPECT_EQ(graph.tensor(id).frozen, !trained) << parameter;
      }
      for (const Op& op : graph.ops()) {
        const int part = op.name == "avgpool" ? 4 : depth_of(op.name + ".", name).part;
        if (op.phase == Phase::backward) {
          EXPECT_GE(part, frozen) << op.name;
        }
        if (op.kind == OpKind::batch_norm) {
          EXPECT_EQ(op.attr<NormAttr>().training, part >= frozen) << op.name;
        }
      }
    }
  }
}

TEST(Differentiate, WantsATrainingGraph) {
  ModelOptions options;
  options.training = false;
  Graph graph = build_resnet(options).graph;
  EXPECT_THROW(differentiate(graph), InternalError);
}

// Forward and both backward convolutions do the same work.
TEST(Differentiate, TripledFlops) {
  Graph graph = build_resnet({}).graph;
  double forward = 0.0, all = 0.0, stem = 0.0;
  for (const Op& op : graph.ops()) {
    forward += flops(graph, op);
    if (op.name == "conv1") stem = flops(graph, op);
  }
  differentiate(graph);
  for (const Op& op : graph.ops()) all += flops(graph, op);
  EXPECT_DOUBLE_EQ(all, 3.0 * forward - stem);
}

}  // namespace
}  // namespace redline::graph
