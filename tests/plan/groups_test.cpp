#include "plan/groups.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "base/error.h"
#include "fakes.h"

namespace redline::plan {
namespace {

using graph::kNone;
using graph::Op;
using graph::OpKind;
using graph::TensorId;
namespace operands = graph::operands;

const Op& op_of(const Plan& plan, int position) {
  return plan.graph().ops()[static_cast<std::size_t>(position)];
}

// Where a row's groups run, as positions in Plan::groups.
std::vector<int> found(const Plan& plan, const std::string& name) {
  std::vector<int> positions;
  for (std::size_t i = 0; i < plan.groups.size(); ++i) {
    if (plan.groups[i].name == name) positions.push_back(static_cast<int>(i));
  }
  return positions;
}

TEST(Groups, WithoutRowsAreTheOpsInOrder) {
  const Plan plan = make_plan(small("resnet18"), FakeBackend{});
  ASSERT_EQ(plan.groups.size(), plan.graph().ops().size());
  for (std::size_t i = 0; i < plan.groups.size(); ++i)
    EXPECT_EQ(plan.groups[i].ops, std::vector<int>{static_cast<int>(i)});
}

TEST(Groups, HaveEveryOpOnceAfterWhatItReads) {
  FakeBackend backend;
  backend.side_stream = 2;
  backend.rows = {fake_rows::kThroughNorm, fake_rows::kWeightGradient};
  for (const char* model : {"resnet18", "resnet50"}) {
    const Plan plan = make_plan(small(model), backend);
    std::set<int> done;
    std::set<TensorId> to_come;
    for (const Op& op : plan.graph().ops()) to_come.insert(op.outputs.begin(), op.outputs.end());
    to_come.erase(kNone);
    for (const Group& group : plan.groups) {
      for (const int position : group.ops) {
        EXPECT_TRUE(done.insert(position).second) << position;
        const Op& op = op_of(plan, position);
        for (const TensorId id : op.inputs) {
          if (id == kNone || is_persistent(plan.graph().tensor(id).kind)) continue;  // of the step before
          EXPECT_TRUE(std::ranges::count(op.outputs, id) > 0 || !to_come.contains(id)) << op.name;
        }
        for (const TensorId id : op.outputs) to_come.erase(id);
      }
    }
    EXPECT_EQ(done.size(), plan.graph().ops().size());
  }
}

// What a group reads stays until the group has run, however far apart its ops are in the graph.
TEST(Groups, ThatReadLaterKeepWhatTheyRead) {
  FakeBackend backend;
  const Plan apart = make_plan(small("resnet50"), backend);
  backend.rows = {fake_rows::kThroughNorm};
  const Plan plan = make_plan(small("resnet50"), backend);
  const std::vector<int> positions = found(plan, "through_norm");
  EXPECT_EQ(positions.size(), 47U) << "one for all sums but those that the head and the last block feed";
  int three_later = 0;
  for (const int at : positions) {
    const Group& group = plan.groups[static_cast<std::size_t>(at)];
    three_later += group.ops.back() - group.ops.front() >= 3 ? 1 : 0;
    const TensorId y = op_of(plan, group.ops.front()).inputs[operands::NormGradApply::y];
    EXPECT_GE(plan.placement(y).last, at);
    EXPECT_EQ(apart.placement(y).last, group.ops.front()) << "alone, the norm's gradient is its last reader";
    // Nothing that is written before the group has read lies over it.
    for (int i = plan.placement(y).first + 1; i <= at; ++i) {
      for (const TensorId written : writes_of(plan.graph(), plan.groups[static_cast<std::size_t>(i)])) {
        const Placement &a = plan.placement(y), &b = plan.placement(written);
        if (written == y || b.region != Region::arena) continue;
        EXPECT_FALSE(a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes)
            << plan.graph().tensor(written).name << " is written over what " << group.name << " reads";
      }
    }
  }
  EXPECT_EQ(three_later, 47);
}

TEST(Groups, OnTheSideStreamAreAtMostSoManyAtATime) {
  FakeBackend backend;
  backend.side_stream = 3;
  backend.rows = {fake_rows::kWeightGradient};
  const Plan plan = make_plan(small("resnet50"), backend);
  EXPECT_EQ(found(plan, "weight_gradient").size(), 53U);
  for (const int at : found(plan, "weight_gradient")) {
    EXPECT_TRUE(plan.groups[static_cast<std::size_t>(at)].side_stream);
    const auto under_way = std::ranges::count_if(found(plan, "weight_gradient"), [&](int other) {
      return other <= at && plan.groups[static_cast<std::size_t>(other)].join > at;
    });
    EXPECT_LE(under_way, 3);
  }
}

TEST(Groups, WithoutASideStreamRunLikeTheOthers) {
  FakeBackend backend;
  backend.rows = {fake_rows::kWeightGradient};
  const Plan plan = make_plan(small("resnet18"), backend);
  for (const Group& group : plan.groups) EXPECT_FALSE(group.side_stream);
}

TEST(Groups, MayLeaveOutOnlyWhatOthersRecompute) {
  FakeBackend backend;
  backend.rows = {fake_rows::kUnstored};
  EXPECT_TRUE(found(make_plan(small("resnet50"), backend), "unstored").empty())
      << "weight gradients read every activation";
  backend.rows = {fake_rows::kRecomputing, fake_rows::kUnstored};
  const Plan plan = make_plan(small("resnet50"), backend);
  EXPECT_EQ(found(plan, "unstored").size(), 32U) << "the first two of each of the 16 blocks; the stem's goes "
                                                    "into its pool, and joins are read elsewhere";
}

TEST(Groups, StoreNothingThatIsRecomputed) {
  FakeBackend backend;
  const std::size_t before = make_plan(small("resnet50"), backend).arena_bytes;
  backend.rows = {fake_rows::kRecomputing, fake_rows::kUnstored};
  const Plan plan = make_plan(small("resnet50"), backend);
  const Plan all_kept = make_plan(plan.graph(), backend);
  std::size_t bytes = 0;
  for (const Group& group : plan.groups) {
    for (const TensorId id : group.unstored) {
      EXPECT_EQ(plan.placement(id).region, Region::none);
      EXPECT_NE(all_kept.placement(id).region, Region::none) << "a graph of one's own keeps every tensor";
      bytes += plan.placement(id).bytes;
    }
    for (const int again : group.recomputes) {
      const TensorId y = op_of(plan, again).inputs[operands::AffineAct::y];
      EXPECT_GE(plan.placement(y).last, static_cast<int>(&group - plan.groups.data()));
    }
  }
  // All of them would be there when backward begins; the peak may be a little later.
  EXPECT_LT(plan.arena_bytes, before - bytes * 9 / 10);
}

// Two ops in a row, and an op between them that is not in the group.
Group match_around(const Node& op) {
  return op.op().name == "a" ? Group{.ops = {op.position, op.position + 2}} : Group{};
}

TEST(Groups, ThatWaitForThemselvesAreRefused) {
  graph::Graph graph;
  graph::Builder builder(graph, graph::DType::f32, true);
  const TensorId x = graph.add_tensor({"x", {1, 16, 2, 2}, graph::DType::f32, graph::TensorKind::activation});
  builder.relu("c", builder.relu("b", builder.relu("a", x)));
  EXPECT_THROW(find_groups(graph, {{"around", match_around}}, 0), InternalError);
}

}  // namespace
}  // namespace redline::plan
