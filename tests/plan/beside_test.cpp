#include "plan/beside.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "fakes.h"
#include "graph/autodiff.h"
#include "plan/fuse.h"

namespace redline::plan {
namespace {

using graph::Graph;
using graph::kNone;
using graph::Op;
using graph::OpKind;
using graph::TensorId;

TEST(Overlap, KeepsAtMostSoManyUnderWay) {
  FakeBackend backend;
  backend.beside = 3;
  const Plan plan = make_plan(small("resnet50"), backend);
  for (const Beside& one : plan.beside) {
    const auto under_way = std::ranges::count_if(
        plan.beside, [&](const Beside& other) { return other.op <= one.op && other.join > one.op; });
    EXPECT_LE(under_way, 3);
  }
}

TEST(Overlap, PutsSumsNextToTheGradientThatFeedsThem) {
  FakeBackend backend;
  backend.beside = 2;
  const Plan plan = make_plan(small("resnet50"), backend);
  const auto& ops = plan.graph().ops();
  int neighbours = 0;
  for (std::size_t i = 0; i + 1 < ops.size(); ++i) {
    if (ops[i].kind != OpKind::conv_grad_input || ops[i + 1].kind != OpKind::norm_grad_stats) continue;
    neighbours += std::ranges::count(ops[i + 1].inputs, ops[i].outputs[0]) == 1 ? 1 : 0;
  }
  EXPECT_EQ(neighbours, 47) << "all but the stem's and those of the four shortcuts and the first block";
}

// What backward of a ResNet with bottleneck blocks is before it is put in another order.
Graph unordered_backward() {
  const Options options = small("resnet50");
  Graph graph = fuse(graph::build_resnet(options.model).graph, FakeBackend{}, options.model.dtype).graph;
  differentiate(graph, graph::DType::f32);
  return graph;
}

// The norm gradients that the next op does not read, of those that any op reads.
std::vector<std::string> apart_from_readers(const Graph& graph) {
  std::vector<std::string> names;
  const auto& ops = graph.ops();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != OpKind::norm_grad_apply) continue;
    const auto reads = [&](const Op& op) { return std::ranges::count(op.inputs, ops[i].outputs[0]) > 0; };
    if (std::ranges::any_of(ops, reads) && !reads(ops.at(i + 1))) names.push_back(ops[i].name);
  }
  return names;
}

// By first output, which no two ops of such a graph share.
std::vector<TensorId> order_of(const Graph& graph, bool norm_gradients) {
  std::vector<TensorId> order;
  for (const Op& op : graph.ops()) {
    if (norm_gradients || op.kind != OpKind::norm_grad_apply) order.push_back(op.outputs[0]);
  }
  return order;
}

TEST(NormGradients, ComeRightBeforeTheirFirstReader) {
  const Graph before = unordered_backward();
  EXPECT_EQ(apart_from_readers(before),
            (std::vector<std::string>{"layer4.0.bn3", "layer3.0.bn3", "layer2.0.bn3", "layer1.0.bn3"}));
  const Graph after = norm_gradients_before_readers(before);
  EXPECT_EQ(apart_from_readers(after), std::vector<std::string>{});
  EXPECT_EQ(order_of(after, false), order_of(before, false)) << "the other ops stay in order";
}

TEST(NormGradients, AreAllThereAfterWhatTheyRead) {
  Graph before;
  const Graph whole = unordered_backward();
  for (const graph::Tensor& tensor : whole.tensors()) before.add_tensor(tensor);
  for (const Op& op : whole.ops()) {
    const bool stem = op.kind == OpKind::conv_grad_weight && op.name == "conv1";
    if (!stem) before.add_op(op);  // so that nothing reads one of them
  }
  const Graph after = norm_gradients_before_readers(before);
  std::vector<TensorId> made = order_of(before, true), still = order_of(after, true);
  std::ranges::sort(made);
  std::ranges::sort(still);
  EXPECT_EQ(still, made);
  std::set<TensorId> to_come;
  for (const Op& op : after.ops()) to_come.insert(op.outputs.begin(), op.outputs.end());
  to_come.erase(kNone);
  for (const Op& op : after.ops()) {
    for (const TensorId read : op.inputs) EXPECT_FALSE(to_come.contains(read)) << op.name;
    for (const TensorId done : op.outputs) to_come.erase(done);
  }
}

}  // namespace
}  // namespace redline::plan
