#include "plan/recompute.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fakes.h"
#include "plan/plan.h"

namespace redline::plan {
namespace {

using graph::kNone;
using graph::Op;
using graph::OpKind;
using graph::Phase;
using graph::TensorId;

Plan planned(Recompute what, const FakeBackend& backend = {}, const std::string& model = "resnet50") {
  Options options = small(model);
  options.recompute = what;
  return make_plan(options, backend);
}

// The layers whose activation is recomputed.
std::vector<std::string> made_again(const Plan& plan) {
  std::vector<std::string> names;
  for (const Op& op : plan.graph().ops())
    if (op.kind == OpKind::affine_act && op.phase == Phase::backward) names.push_back(op.name);
  std::ranges::sort(names);
  return names;
}

TEST(Recompute, IsOffUnlessAskedFor) { EXPECT_TRUE(made_again(planned(Recompute::none)).empty()); }

// Two in each of 16 blocks are read by a weight gradient.
TEST(Recompute, ActivationsAreThoseWithinBlocks) {
  const std::vector<std::string> names = made_again(planned(Recompute::activations));
  EXPECT_EQ(names.size(), 32U);
  for (const std::string& name : names) EXPECT_FALSE(name.ends_with(".relu")) << name;
}

TEST(Recompute, OfTwoBlocksInARowOneIsKept) {
  std::vector<std::string> names = made_again(planned(Recompute::blocks));
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".relu"); });
  // The last block's output is not read in backward at all.
  EXPECT_EQ(names,
            (std::vector<std::string>{"layer1.0.relu", "layer1.2.relu", "layer2.0.relu", "layer2.2.relu",
                                      "layer3.0.relu", "layer3.2.relu", "layer3.4.relu", "layer4.0.relu"}));
}

TEST(Recompute, ACopyHasTheInputsOfItsOriginalAndIsMadeRightBeforeItIsRead) {
  const Plan plan = planned(Recompute::blocks);
  std::map<std::string, const Op*> originals;
  const std::vector<Op>& ops = plan.graph().ops();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    if (op.kind != OpKind::affine_act) continue;
    if (op.phase == Phase::forward) {
      originals[op.name] = &op;
      continue;
    }
    ASSERT_TRUE(originals.contains(op.name));
    EXPECT_EQ(op.inputs, originals.at(op.name)->inputs);
    EXPECT_EQ(graph::operands::out(op, graph::operands::AffineAct::mask), kNone);
    EXPECT_GT(std::ranges::count(ops[i + 1].inputs, op.outputs.front()), 0) << op.name;
  }
}

TEST(Recompute, NoActivationOfTheForwardPassIsKeptForACopy) {
  const Plan plan = planned(Recompute::blocks);
  std::set<TensorId> originals;
  std::set<std::string> again;
  for (const std::string& name : made_again(plan)) again.insert(name);
  for (const Op& op : plan.graph().ops()) {
    if (op.kind == OpKind::affine_act && op.phase == Phase::forward && again.contains(op.name))
      originals.insert(op.outputs.front());
  }
  for (const Op& op : plan.graph().ops()) {
    if (op.phase != Phase::backward) continue;
    for (const TensorId id : op.inputs)
      EXPECT_FALSE(originals.contains(id)) << op.name << " reads " << plan.graph().tensor(id).name;
  }
}

TEST(Recompute, SavesMemory) {
  for (const char* model : {"resnet18", "resnet50", "resnext50_32x4d"}) {
    const std::size_t none = planned(Recompute::none, {}, model).arena_bytes;
    const std::size_t some = planned(Recompute::activations, {}, model).arena_bytes;
    const std::size_t most = planned(Recompute::blocks, {}, model).arena_bytes;
    EXPECT_LT(some, none) << model;
    EXPECT_LT(most, some) << model;
  }
}

// What a kernel recomputes as it reads is not in memory in the first place.
TEST(Recompute, LeavesToKernelsWhatTheyRecompute) {
  FakeBackend backend;
  backend.rows = {fake_rows::kRecomputing, fake_rows::kUnstored};
  EXPECT_TRUE(made_again(planned(Recompute::activations, backend)).empty());
}

}  // namespace
}  // namespace redline::plan
