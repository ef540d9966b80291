#include "plan/traffic.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fakes.h"

namespace redline::plan {
namespace {

using graph::DType;
using graph::OpKind;

constexpr double kTensor = 2 * 16 * 8 * 8 * 4;  // bytes

// Two ops in a row, and `readers` of the second's output.
Plan chain(int readers) {
  graph::Graph graph;
  graph::Builder builder(graph, DType::f32, true);
  const auto x = graph.add_tensor({"x", {2, 16, 8, 8}, DType::f32, graph::TensorKind::activation});
  const auto b = builder.relu("b", builder.relu("a", x));
  for (int i = 0; i < readers; ++i) builder.relu("reader" + std::to_string(i), b);
  return make_plan(std::move(graph), FakeBackend());
}

std::vector<double> bytes_of(const Plan& plan, const std::vector<Group>& groups) {
  std::vector<double> bytes;
  for (const Work& work : work_of(plan, groups)) bytes.push_back(work.bytes / kTensor);
  return bytes;
}
Group of(std::vector<int> ops, std::vector<int> recomputes = {}) {
  return {.ops = std::move(ops), .recomputes = std::move(recomputes)};
}

using Tensors = std::vector<double>;

TEST(Traffic, AnOpAloneReadsAndWritesItsTensors) {
  const Plan plan = chain(1);
  EXPECT_EQ(bytes_of(plan, each_alone(plan.graph())), (Tensors{2, 2, 2}));
}

TEST(Traffic, WhatAGroupMakesForItselfIsNotStored) {
  EXPECT_EQ(bytes_of(chain(1), {of({0, 1}), of({2})}), (Tensors{2, 2}));
  EXPECT_EQ(bytes_of(chain(1), {of({0, 1, 2})}), (Tensors{2}));
}

TEST(Traffic, WhatIsReadElsewhereIsStoredOnce) {
  EXPECT_EQ(bytes_of(chain(2), {of({0}), of({1, 2}), of({3})}), (Tensors{2, 3, 2}));
}

TEST(Traffic, WhatEveryReaderRecomputesIsNotStored) {
  EXPECT_EQ(bytes_of(chain(2), {of({0}), of({1, 2}), of({3}, {1})}), (Tensors{2, 2, 2}));
}

TEST(Traffic, WhatIsRecomputedIsStoredForOtherReaders) {
  // The second op is done by itself, for the reader that follows it, and again for the other one.
  EXPECT_EQ(bytes_of(chain(2), {of({0}), of({1}), of({2}), of({3}, {1})}), (Tensors{2, 2, 2, 2}));
  // It is done with a reader, then again for another, and stored once for the third.
  EXPECT_EQ(bytes_of(chain(3), {of({0}), of({1, 2}), of({3}, {1}), of({4})}), (Tensors{2, 3, 2, 2}));
}

struct Training {
  Plan plan;
  explicit Training(DType dtype, bool sums = false, std::int64_t image_size = 64) {
    Options options = small("resnet18");
    options.model.image_size = image_size;
    options.model.dtype = dtype;
    FakeBackend backend;
    backend.sums = sums;
    plan = make_plan(options, backend);
  }
  std::vector<int> positions(OpKind kind) const {
    std::vector<int> found;
    for (std::size_t i = 0; i < plan.graph().ops().size(); ++i) {
      if (plan.graph().ops()[i].kind == kind) found.push_back(static_cast<int>(i));
    }
    return found;
  }
  const graph::Op& op(int position) const { return plan.graph().ops()[static_cast<std::size_t>(position)]; }
  double stored(graph::TensorId id) const { return static_cast<double>(plan.placement(id).bytes); }
};

TEST(Traffic, ANormWithSumsDoesNotReadTheActivation) {
  const Training with(DType::f16, true), without(DType::f16, false);
  const auto first = [](const Training& t) {
    const int at = t.positions(OpKind::norm_stats).front();
    const double bytes = work_of(t.plan, t.plan.groups)[static_cast<std::size_t>(at)].bytes;
    return bytes / t.stored(t.op(at).inputs[0]);
  };
  EXPECT_LT(first(with), 0.1);
  EXPECT_GT(first(without), 1);
}

TEST(Traffic, CopiesOfWeightsAreWrittenByTheUpdateAndReadByConvolutions) {
  Training t(DType::f16);
  t.plan.weights = DType::f16;
  const std::vector<int> updates = t.positions(OpKind::sgd);
  std::vector<Group> groups = each_alone(t.plan.graph());
  std::erase_if(groups, [&](const Group& group) { return std::ranges::count(updates, group.ops[0]) > 0; });
  groups.push_back(of(updates));
  const std::vector<Work> work = work_of(t.plan, groups);

  const graph::Op& first = t.op(updates.front());
  double expected = t.stored(first.inputs[3]) + t.stored(first.inputs[4]);  // scalars and check, for all
  for (const int position : updates) {
    const graph::Op& op = t.op(position);
    const double master = t.stored(op.inputs[0]);
    const bool copied = t.plan.graph().tensor(op.inputs[0]).shape.rank() > 1;
    expected += 4 * master + t.stored(op.inputs[1]) + (copied ? master / 2 : 0);
  }
  EXPECT_DOUBLE_EQ(work.back().bytes, expected);

  const int conv = t.positions(OpKind::conv).front();
  const graph::Op& op = t.op(conv);
  EXPECT_DOUBLE_EQ(work[static_cast<std::size_t>(conv)].bytes,
                   t.stored(op.inputs[0]) + t.stored(op.inputs[1]) / 2 + t.stored(op.outputs[0]));
}

TEST(Traffic, AStrideBeyondTheWindowReadsAQuarter) {
  const Training t(DType::f32);
  const std::vector<Work> work = work_of(t.plan, t.plan.groups);
  int found = 0;
  for (const int at : t.positions(OpKind::conv)) {
    const graph::Op& op = t.op(at);
    const bool skips =
        op.attr<graph::ConvAttr>().stride == 2 && t.plan.graph().tensor(op.inputs[1]).shape[2] == 1;
    const double read =
        work[static_cast<std::size_t>(at)].bytes - t.stored(op.inputs[1]) - t.stored(op.outputs[0]);
    EXPECT_DOUBLE_EQ(read, t.stored(op.inputs[0]) / (skips ? 4 : 1)) << op.name;
    found += skips ? 1 : 0;
  }
  EXPECT_EQ(found, 3);  // the shortcuts of ResNet-18
}

// The three passes of ResNet-18 on 64 pixels, whose last layer has 2x2: of three taps along a side, two meet
// it.
TEST(Traffic, TapsOnPaddingAreNoWork) {
  const Training t(DType::f32);
  const std::vector<Work> work = work_of(t.plan, t.plan.groups);
  int found = 0;
  for (const OpKind kind : {OpKind::conv, OpKind::conv_grad_input, OpKind::conv_grad_weight}) {
    for (const int at : t.positions(kind)) {
      const graph::Op& op = t.op(at);
      const double part = work[static_cast<std::size_t>(at)].flops / graph::flops(t.plan.graph(), op);
      if (op.name == "layer4.1.conv2") {
        EXPECT_DOUBLE_EQ(part, 4.0 / 9) << name_of(kind);
        ++found;
      }
      // 4x4 to 2x2 with stride 2: along a side, one of six taps is on padding.
      if (op.name == "layer4.0.conv1") {
        EXPECT_DOUBLE_EQ(part, 25.0 / 36) << name_of(kind);
        ++found;
      }
      if (op.name == "layer4.0.downsample.0") {
        EXPECT_DOUBLE_EQ(part, 1) << name_of(kind);
        ++found;
      }
    }
  }
  EXPECT_EQ(found, 9);
}

// On 32 pixels the last layer has 1x1: only the middle one of nine taps ever meets it.
TEST(Traffic, TapsThatOnlyMeetPaddingAreNotRead) {
  const Training tiny(DType::f32, false, 32), wide(DType::f32);
  const auto of_filter = [](const Training& t, OpKind kind) {
    for (const int at : t.positions(kind)) {
      const graph::Op& op = t.op(at);
      if (op.name != "layer4.1.conv2") continue;
      const graph::TensorId filter = op.inputs[graph::operands::Conv::w];
      double others = 0;
      for (const graph::TensorId id : op.inputs) others += id == filter ? 0 : t.stored(id);
      for (const graph::TensorId id : op.outputs) others += id == graph::kNone ? 0 : t.stored(id);
      const double bytes = work_of(t.plan, t.plan.groups)[static_cast<std::size_t>(at)].bytes;
      return (bytes - others) / t.stored(filter);
    }
    return 0.0;
  };
  for (const OpKind kind : {OpKind::conv, OpKind::conv_grad_input}) {
    EXPECT_NEAR(of_filter(tiny, kind), 1.0 / 9, 1e-3) << name_of(kind);
    EXPECT_NEAR(of_filter(wide, kind), 1, 1e-3) << name_of(kind);
  }
}

TEST(Traffic, NoWorkIsLostInGroups) {
  const Training t(DType::f32);
  std::vector<Group> groups = t.plan.groups;
  const auto total = [&] {
    Work sum;
    for (const Work& work : work_of(t.plan, groups)) {
      sum.flops += work.flops;
      sum.bytes += work.bytes;
    }
    return sum;
  };
  const Work apart = total();
  for (std::size_t i = 0; i + 1 < groups.size(); ++i) {
    groups[i].ops.push_back(groups[i + 1].ops.front());
    groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  EXPECT_DOUBLE_EQ(total().flops, apart.flops);
  EXPECT_LT(total().bytes, apart.bytes);
}

int position_of(const Training& t, OpKind kind, const std::string& name) {
  for (const int at : t.positions(kind)) {
    if (t.op(at).name == name) return at;
  }
  ADD_FAILURE() << "no " << name_of(kind) << " " << name;
  return 0;
}

TEST(Traffic, GroupsAreNamedByTheirFirstConvolution) {
  const Training t(DType::f32);
  const std::string layer = "layer1.1.";
  const int act = position_of(t, OpKind::affine_act, layer + "relu1");
  const int apply = position_of(t, OpKind::norm_grad_apply, layer + "bn2");
  const int input = position_of(t, OpKind::conv_grad_input, layer + "conv2");
  const int sums = position_of(t, OpKind::norm_grad_stats, layer + "bn1");
  const int weight = position_of(t, OpKind::conv_grad_weight, layer + "conv2");
  const Group group = of({apply, input, sums, weight}, {act});
  EXPECT_EQ(lead_of(t.plan.graph(), group), input);
  EXPECT_EQ(others_text(t.plan.graph(), group), " with norm_grad_apply, norm_grad_stats, conv_grad_weight");
  EXPECT_EQ(others_text(t.plan.graph(), of({act})), "");
}

TEST(Traffic, OtherGroupsAreNamedByTheirLastOp) {
  const Training t(DType::f32);
  const int norm = t.positions(OpKind::norm_stats).front(), act = t.positions(OpKind::affine_act).front();
  const Group group = of({norm, act});
  EXPECT_EQ(lead_of(t.plan.graph(), group), act);
  EXPECT_EQ(others_text(t.plan.graph(), group), " with norm_stats");
  EXPECT_FALSE(updates_many(t.plan.graph(), group));
  const Group updates = of(t.positions(OpKind::sgd));
  EXPECT_EQ(others_text(t.plan.graph(), updates), "");
  EXPECT_TRUE(updates_many(t.plan.graph(), updates));
}

}  // namespace
}  // namespace redline::plan
