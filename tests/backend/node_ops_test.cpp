// The ops of a captured step's kernels, as a trace names them.
#include "backend/cuda/node_ops.h"

#include <vector>

#include <gtest/gtest.h>

namespace redline::backend::cuda {
namespace {

graph::Op op(graph::OpKind kind, const char* name) { return {kind, name, graph::Phase::forward, {}, {}, {}}; }

// A capture with nodes that are numbered from 1 on.
struct Capture {
  std::uint64_t number = 1;
  std::uint64_t first_id = 1;
  std::vector<char> memory = std::vector<char>(8);
  std::vector<NodeOps::Node> nodes;

  void launch() { nodes.push_back(&memory[nodes.size()]); }
  void tell(NodeOps& ops, const graph::Op* op) const {
    ops.add(number, nodes, op, [this](NodeOps::Node node) {
      return std::optional(first_id +
                           static_cast<std::uint64_t>(static_cast<const char*>(node) - memory.data()));
    });
  }
};

// As CudaExecutable::capture: a stamp, two ops, a stamp.
struct CapturedStep {
  const graph::Op statistics = op(graph::OpKind::snapshot, "statistics"),
                  conv = op(graph::OpKind::conv, "conv1");
  NodeOps ops;
  Capture capture;

  CapturedStep() {
    capture.launch();  // the stamp of the step's begin: 1
    capture.tell(ops, nullptr);
    capture.launch();  // 2
    capture.tell(ops, &statistics);
    capture.launch();  // 3, 4
    capture.launch();
    capture.tell(ops, &conv);
    capture.launch();  // the stamp of its end: 5
  }
};

TEST(NodeOps, TheStampOfAStepsBeginIsNoPartOfItsFirstOp) {
  const CapturedStep step;
  EXPECT_EQ(step.ops.find(1), nullptr);
  EXPECT_EQ(step.ops.find(2), &step.statistics);
}

TEST(NodeOps, AnOpHasTheNodesThatAppearedSinceTheOneBefore) {
  const CapturedStep step;
  EXPECT_EQ(step.ops.find(3), &step.conv);
  EXPECT_EQ(step.ops.find(4), &step.conv);
  EXPECT_EQ(step.ops.find(5), nullptr) << "the stamp of the step's end";
}

TEST(NodeOps, CopiesOfNodesBelongToTheSameOp) {
  CapturedStep step;
  for (std::uint64_t id = 1; id <= 5; ++id) step.ops.clone(id, 100 + id);
  EXPECT_EQ(step.ops.find(101), nullptr);
  EXPECT_EQ(step.ops.find(102), &step.statistics);
  EXPECT_EQ(step.ops.find(104), &step.conv);
  EXPECT_EQ(step.ops.find(105), nullptr);
}

TEST(NodeOps, AnotherCaptureMayHaveNodesAtTheSameAddresses) {
  CapturedStep step;
  Capture again = step.capture;
  again.number = 2;
  again.first_id = 11;
  again.memory.swap(step.capture.memory);  // the same addresses
  again.nodes.clear();
  again.launch();
  again.tell(step.ops, &step.conv);
  EXPECT_EQ(step.ops.find(11), &step.conv);
}

TEST(NodeOps, ANodeThatCannotBeNamedHasNoOp) {
  NodeOps ops;
  const graph::Op conv = op(graph::OpKind::conv, "conv1");
  char node = 0;
  const NodeOps::Node nodes[] = {&node};
  ops.add(1, nodes, &conv, [](NodeOps::Node) { return std::optional<std::uint64_t>(); });
  EXPECT_EQ(ops.find(0), nullptr);
}

}  // namespace
}  // namespace redline::backend::cuda
