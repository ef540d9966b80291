#include "plan/plan.h"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "base/error.h"
#include "fakes.h"

namespace redline::plan {
namespace {

using graph::kNone;
using graph::Op;
using graph::OpKind;
using graph::Phase;
using graph::TensorId;
using graph::TensorKind;

// Plans of every shape this program makes.
struct Variant {
  std::string name;
  Options options;
  FakeBackend backend;
};

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const char* model : {"resnet18", "resnet50"}) {
    const auto add = [&](const std::string& name, auto&& change) {
      all.push_back({std::string(model) + " " + name, small(model), {}});
      change(all.back());
    };
    add("plain", [](Variant&) {});
    add("unfused", [](Variant& v) { v.options.fuse = false; });
    add("blocked", [](Variant& v) { v.backend.blocked = true; });
    add("sums", [](Variant& v) { v.backend.sums = true; });
    add("overlapping", [](Variant& v) {
      v.backend.side_stream = 2;
      v.backend.rows = {fake_rows::kWeightGradient};
    });
    add("overlapping and accumulating", [](Variant& v) {
      v.backend.side_stream = 1;
      v.backend.rows = {fake_rows::kWeightGradient};
      v.options.accumulate = 2;
    });
    add("overlapping and grouping", [](Variant& v) {
      v.backend.side_stream = 1;
      v.backend.rows = {fake_rows::kThroughNorm, fake_rows::kWeightGradient};
      v.options.all_reduce = true;
    });
    add("recomputing", [](Variant& v) {
      v.backend.rows = {fake_rows::kRecomputing, fake_rows::kUnstored, fake_rows::kThroughNorm};
    });
    add("recomputing activations", [](Variant& v) { v.options.recompute = Recompute::activations; });
    add("recomputing blocks, overlapping", [](Variant& v) {
      v.options.recompute = Recompute::blocks;
      v.backend.side_stream = 2;
      v.backend.rows = {fake_rows::kThroughNorm, fake_rows::kWeightGradient};
      v.options.all_reduce = true;
    });
    add("bf16", [](Variant& v) { v.options.model.dtype = graph::DType::bf16; });
    add("accumulating", [](Variant& v) { v.options.accumulate = 4; });
    add("ema and reduce", [](Variant& v) { v.options.ema = v.options.all_reduce = true; });
    add("small buckets", [](Variant& v) { v.options.bucket_bytes = 100'000; });
    add("lars", [](Variant& v) { v.options.optimizer = OptimizerKind::lars; });
    add("lamb", [](Variant& v) { v.options.optimizer = OptimizerKind::lamb; });
    add("adamw, frozen", [](Variant& v) {
      v.options.optimizer = OptimizerKind::adamw;
      v.options.model.frozen_parts = 2;
    });
    add("gradients only", [](Variant& v) { v.options.optimizer = OptimizerKind::none; });
    add("evaluation", [](Variant& v) {
      v.options.model.training = false;
      v.options.optimizer = OptimizerKind::none;
    });
  }
  return all;
}

// Those that are not frozen.
std::vector<TensorId> moving(const Plan& plan, TensorKind kind) {
  std::vector<TensorId> ids = plan.graph().of_kind(kind);
  std::erase_if(ids, [&](TensorId id) { return plan.graph().tensor(id).frozen; });
  return ids;
}

bool is_optimizer(OpKind kind) {
  return kind == OpKind::sgd || kind == OpKind::lars || kind == OpKind::adamw || kind == OpKind::lamb;
}

bool overlap(const Placement& a, const Placement& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// Memory as a step uses it: who wrote each byte last. A group on the side stream reads until its join.
class Memory {
 public:
  explicit Memory(const Plan& plan) : plan_(plan) {}

  void write(TensorId id) {
    if (plan_.placement(id).region != Region::arena) return;
    for (TensorId other : written_) {
      if (other != id && overlap(plan_.placement(id), plan_.placement(other))) lost_.insert(other);
    }
    lost_.erase(id);
    written_.insert(id);
  }
  void expect_intact(TensorId id) const {
    EXPECT_FALSE(lost_.contains(id)) << plan_.graph().tensor(id).name << " is read after it was written over";
  }

 private:
  const Plan& plan_;
  std::set<TensorId> written_, lost_;
};

TEST(Arena, NobodyReadsWhatWasWrittenOver) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    const Plan plan = make_plan(v.options, v.backend);
    Memory memory(plan);
    std::multimap<int, const Group*> joins;
    for (int i = 0; i < static_cast<int>(plan.groups.size()); ++i) {
      for (auto [at, end] = joins.equal_range(i); at != end; ++at) {
        for (TensorId id : reads_of(plan.graph(), *at->second)) memory.expect_intact(id);
        for (TensorId id : writes_of(plan.graph(), *at->second)) memory.expect_intact(id);
      }
      const Group& group = plan.groups[static_cast<std::size_t>(i)];
      const std::vector<TensorId> reads = reads_of(plan.graph(), group),
                                  writes = writes_of(plan.graph(), group);
      for (TensorId id : reads) memory.expect_intact(id);
      for (TensorId written : writes) {
        memory.write(written);
        // While a group runs, what it writes lies over what it reads only where it said that it may.
        for (TensorId read : reads) {
          const Placement &a = plan.placement(read), &b = plan.placement(written);
          if (read == written || a.region != Region::arena || b.region != Region::arena || !overlap(a, b))
            continue;
          EXPECT_TRUE(a.offset == b.offset && a.bytes == b.bytes &&
                      std::ranges::any_of(group.in_place,
                                          [&](const InPlace& choice) {
                                            return choice.input == read && choice.output == written;
                                          }))
              << plan.graph().tensor(written).name << " over " << plan.graph().tensor(read).name;
        }
      }
      for (TensorId id : writes) memory.expect_intact(id);
      if (group.side_stream) joins.emplace(group.join, &group);
    }
  }
}

TEST(Arena, HasAPlaceForEverythingThatIsReadOrWritten) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    const Plan plan = make_plan(v.options, v.backend);
    for (std::size_t i = 0; i < plan.groups.size(); ++i) {
      for (const auto& ids :
           {reads_of(plan.graph(), plan.groups[i]), writes_of(plan.graph(), plan.groups[i])}) {
        for (TensorId id : ids) {
          const Placement& placement = plan.placement(id);
          EXPECT_NE(placement.region, Region::none) << plan.graph().tensor(id).name;
          EXPECT_LE(placement.first, static_cast<int>(i));
          EXPECT_GE(placement.last, static_cast<int>(i));
          EXPECT_EQ(placement.bytes, stored_bytes(plan.graph().tensor(id), placement.layout));
          if (placement.region == Region::arena) {
            EXPECT_LE(placement.offset + placement.bytes, plan.arena_bytes);
          }
        }
      }
    }
    EXPECT_EQ(plan.placement(plan.model.logits).last, static_cast<int>(plan.groups.size()) - 1)
        << "the host reads the logits";
  }
}

// Nothing but the update waits for what the side stream makes.
TEST(SideStream, IsJoinedBeforeItsResultsAreRead) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    const Plan plan = make_plan(v.options, v.backend);
    for (std::size_t i = 0; i < plan.groups.size(); ++i) {
      const Group& group = plan.groups[i];
      if (!group.side_stream) continue;
      EXPECT_GT(group.join, static_cast<int>(i));
      EXPECT_LE(group.join, plan.update_begin);
      for (std::size_t later = i + 1; later < static_cast<std::size_t>(group.join); ++later) {
        for (TensorId written : writes_of(plan.graph(), group))
          EXPECT_EQ(std::ranges::count(reads_of(plan.graph(), plan.groups[later]), written), 0);
      }
    }
  }
}

// A device may clear them all when the step begins.
TEST(Arena, KeepsConvolutionsSumsFreeFromTheBeginning) {
  FakeBackend backend;
  backend.sums = true;
  const Plan plan = make_plan(small("resnet18"), backend);
  int convolutions = 0;
  for (const Op& op : plan.graph().ops()) {
    const TensorId sums = sums_of(op);
    EXPECT_EQ(sums != graph::kNone, op.kind == OpKind::conv) << op.name;
    if (sums == graph::kNone) continue;
    ++convolutions;
    EXPECT_EQ(plan.placement(sums).first, 0) << op.name;
  }
  EXPECT_EQ(convolutions, 20);
}

TEST(Arena, IsSmallerThanItsTensors) {
  const Plan plan = make_plan(small("resnet50"), FakeBackend{});
  std::size_t sum = 0;
  for (const Placement& placement : plan.placements) {
    if (placement.region == Region::arena) sum += placement.bytes;
  }
  EXPECT_LT(plan.arena_bytes, sum * 3 / 4);
}

TEST(Buckets, AreContiguousCompleteAndInOrder) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    const Plan plan = make_plan(v.options, v.backend);
    std::size_t offset = 0;
    int ready = -1;
    std::set<TensorId> seen;
    for (const Bucket& bucket : plan.buckets) {
      EXPECT_EQ(bucket.offset, offset);
      EXPECT_FALSE(bucket.gradients.empty());
      EXPECT_GE(bucket.ready_after, ready) << "backward completes buckets in order";
      EXPECT_LT(bucket.ready_after, plan.update_begin);
      ready = bucket.ready_after;
      std::size_t inside = bucket.offset;
      for (TensorId id : bucket.gradients) {
        const Placement& placement = plan.placement(id);
        EXPECT_TRUE(seen.insert(id).second);
        EXPECT_EQ(placement.region, Region::bucket);
        EXPECT_GE(placement.offset, inside);
        EXPECT_LT(placement.offset - inside, 256U) << "only alignment between neighbours";
        EXPECT_EQ(placement.offset % 64, 0U);
        inside = placement.offset + placement.bytes;
      }
      EXPECT_LE(inside, bucket.offset + bucket.bytes);
      offset = bucket.offset + bucket.bytes;
    }
    EXPECT_EQ(offset, plan.gradient_bytes);
    EXPECT_EQ(seen.size(), v.options.model.training ? moving(plan, TensorKind::parameter).size() : 0U);
  }
}

TEST(Buckets, CloseWhenFull) {
  Options options = small("resnet18");
  options.bucket_bytes = 1'000'000;
  const Plan plan = make_plan(options, FakeBackend{});
  ASSERT_GT(plan.buckets.size(), 5U);
  for (std::size_t i = 0; i + 1 < plan.buckets.size(); ++i) {
    const Bucket& bucket = plan.buckets[i];
    EXPECT_GE(bucket.bytes, options.bucket_bytes);
    const std::size_t last = plan.placement(bucket.gradients.back()).bytes;
    EXPECT_LT(bucket.bytes - last, options.bucket_bytes + 256) << "no more than the gradient that filled it";
  }
}

TEST(Update, ComesLastAndTouchesEveryParameterOnce) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    const Plan plan = make_plan(v.options, v.backend);
    const auto& ops = plan.graph().ops();
    std::multiset<TensorId> updated;
    for (std::size_t i = 0; i < plan.groups.size(); ++i) {
      for (const int position : plan.groups[i].ops) {
        const Op& op = ops[static_cast<std::size_t>(position)];
        EXPECT_EQ(op.phase == Phase::update, static_cast<int>(i) >= plan.update_begin) << op.name;
        if (is_optimizer(op.kind)) updated.insert(op.outputs[0]);
      }
    }
    const auto parameters = moving(plan, TensorKind::parameter);
    const bool trains = v.options.optimizer != OptimizerKind::none;
    EXPECT_EQ(updated, trains ? std::multiset<TensorId>(parameters.begin(), parameters.end())
                              : std::multiset<TensorId>{});
  }
}

TEST(Update, SparesNormsAndBiases) {
  Options options = small("resnet18");
  options.weight_decay = 0.5F;
  for (bool decay_all : {false, true}) {
    options.decay_norm_and_bias = decay_all;
    const Plan plan = make_plan(options, FakeBackend{});
    for (const Op& op : plan.graph().ops()) {
      if (op.kind != OpKind::sgd) continue;
      const bool matrix = plan.graph().tensor(op.inputs[0]).shape.rank() > 1;
      EXPECT_EQ(op.attr<graph::SgdAttr>().weight_decay, matrix || decay_all ? 0.5F : 0.0F) << op.name;
    }
  }
}

TEST(Update, LarsLeavesNormsAndBiasesToSgd) {
  Options options = small("resnet18");
  options.optimizer = OptimizerKind::lars;
  const Plan plan = make_plan(options, FakeBackend{});
  for (const Op& op : plan.graph().ops()) {
    if (op.kind != OpKind::lars && op.kind != OpKind::sgd) continue;
    const bool matrix = plan.graph().tensor(op.inputs[0]).shape.rank() > 1;
    EXPECT_EQ(op.kind, matrix ? OpKind::lars : OpKind::sgd) << op.name;
  }
}

TEST(Update, LambLeavesNormsAndBiasesToAdamW) {
  Options options = small("resnet18");
  options.optimizer = OptimizerKind::lamb;
  const Plan plan = make_plan(options, FakeBackend{});
  for (const Op& op : plan.graph().ops()) {
    if (!is_optimizer(op.kind)) continue;
    const bool matrix = plan.graph().tensor(op.inputs[0]).shape.rank() > 1;
    EXPECT_EQ(op.kind, matrix ? OpKind::lamb : OpKind::adamw) << op.name;
    EXPECT_EQ(op.outputs.size(), 3u);
  }
}

// ResNet-18 has eight blocks between its stem and its head.
TEST(Update, RatesFallTowardsTheStem) {
  Options options = small("resnet18");
  options.layer_decay = 0.5F;
  options.head_rate = 3.0F;
  const Plan plan = make_plan(options, FakeBackend{});
  const auto rate = [&](const char* parameter) {
    for (const Op& op : plan.graph().ops())
      if (op.kind == OpKind::sgd && op.name == parameter) return op.attr<graph::SgdAttr>().rate;
    return -1.0F;
  };
  EXPECT_EQ(rate("fc.bias"), 3.0F);
  EXPECT_EQ(rate("layer4.1.bn2.weight"), 0.5F);
  EXPECT_EQ(rate("layer4.0.downsample.0.weight"), 0.25F);
  EXPECT_EQ(rate("layer1.0.conv1.weight"), 0x1p-8F);
  EXPECT_EQ(rate("conv1.weight"), 0x1p-9F);
}

// With the stem and the first stage frozen, nothing of them is kept for a backward pass: the arena is
// smaller, and the backward pass has no convolution of theirs.
TEST(Update, FrozenPartsCostAForwardPass) {
  Options options = small("resnet50");
  const Plan whole = make_plan(options, FakeBackend{});
  options.model.frozen_parts = 2;
  const Plan part = make_plan(options, FakeBackend{});
  EXPECT_LT(part.arena_bytes, whole.arena_bytes);
  EXPECT_LT(part.gradient_bytes, whole.gradient_bytes);
  for (const Op& op : part.graph().ops())
    EXPECT_FALSE(op.phase == Phase::backward && op.name.starts_with("layer1")) << op.name;
}

// Everything that outlives the step is written by ops that know whether it counts; the running statistics,
// which forward moves, are copied before it and put back.
TEST(Update, IsGuardedByACheckOfEveryGradient) {
  for (const Variant& v : variants()) {
    if (v.options.optimizer == OptimizerKind::none) continue;
    SCOPED_TRACE(v.name);
    const Plan plan = make_plan(v.options, v.backend);
    const auto& ops = plan.graph().ops();
    EXPECT_EQ(ops.front().kind, OpKind::snapshot);
    bool checked = false;
    std::set<TensorId> seen;
    for (const Op& op : ops) {
      if (op.kind == OpKind::all_reduce) {
        EXPECT_FALSE(checked) << "sums over ranks are checked, not parts";
      }
      if (op.kind == OpKind::gradient_check) {
        checked = true;
        EXPECT_EQ(op.outputs[0], plan.check);
        seen.insert(op.inputs.begin(), op.inputs.end());
      }
      if (is_optimizer(op.kind) || op.kind == OpKind::ema) {
        EXPECT_TRUE(checked);
        EXPECT_EQ(op.inputs.back(), plan.check);
      }
      if (is_optimizer(op.kind)) {
        EXPECT_TRUE(seen.contains(op.inputs[1])) << op.name;
      }
      if (op.kind == OpKind::restore) {
        EXPECT_EQ(op.outputs, moving(plan, TensorKind::statistic));
      }
    }
    EXPECT_TRUE(checked);
  }
}

TEST(Update, ScalesTheLossInFp16Alone) {
  for (const graph::DType dtype : {graph::DType::f32, graph::DType::bf16, graph::DType::f16}) {
    Options options = small("resnet18");
    options.model.dtype = dtype;
    const Plan plan = make_plan(options, FakeBackend{});
    const bool half = dtype == graph::DType::f16;
    EXPECT_EQ(plan.graph().tensor(plan.graph().find("loss_scale")).fill, half ? 65536.0F : 1.0F);
    for (const Op& op : plan.graph().ops()) {
      if (op.kind != OpKind::gradient_check) continue;
      EXPECT_EQ(op.attr<graph::ScaleAttr>().dynamic, half);
    }
  }
}

TEST(Update, AveragesParametersAndStatistics) {
  Options options = small("resnet18");
  options.ema = true;
  const Plan plan = make_plan(options, FakeBackend{});
  const auto& graph = plan.graph();
  EXPECT_EQ(graph.of_kind(TensorKind::average).size(),
            graph.of_kind(TensorKind::parameter).size() + graph.of_kind(TensorKind::statistic).size());
}

TEST(Update, AllReduceCoversEveryBucket) {
  Options options = small("resnet18");
  options.all_reduce = true;
  options.bucket_bytes = 4'000'000;
  const Plan plan = make_plan(options, FakeBackend{});
  std::vector<std::vector<TensorId>> reduced;
  for (const Op& op : plan.graph().ops()) {
    if (op.kind == OpKind::all_reduce) reduced.push_back(op.inputs);
  }
  ASSERT_EQ(reduced.size(), plan.buckets.size());
  for (std::size_t i = 0; i < reduced.size(); ++i) EXPECT_EQ(reduced[i], plan.buckets[i].gradients);
}

TEST(Accumulate, TotalsTakeTheGradientsPlace) {
  Options options = small("resnet18");
  options.accumulate = 2;
  const Plan plan = make_plan(options, FakeBackend{});
  const auto& graph = plan.graph();
  std::set<TensorId> totals;
  for (const Op& op : graph.ops()) {
    if (op.kind != OpKind::accumulate) continue;
    totals.insert(op.outputs[0]);
    EXPECT_EQ(plan.placement(op.outputs[0]).region, Region::bucket);
    EXPECT_EQ(plan.placement(op.inputs[1]).region, Region::arena)
        << "this batch's gradient is soon forgotten";
  }
  EXPECT_EQ(totals.size(), graph.of_kind(TensorKind::parameter).size());
  for (const Op& op : graph.ops()) {
    if (op.kind == OpKind::sgd) {
      EXPECT_TRUE(totals.contains(op.inputs[1])) << op.name;
    }
  }
}

TEST(MakePlan, RefusesContradictions) {
  Options options = small("resnet18");
  options.accumulate = 0;
  EXPECT_THROW(make_plan(options, FakeBackend{}), UsageError);
  options = small("resnet18");
  options.model.training = false;
  EXPECT_THROW(make_plan(options, FakeBackend{}), UsageError) << "an evaluation with an optimizer";
}

TEST(MakePlan, OfAGraphKeepsEveryTensor) {
  graph::Graph graph;
  graph::Builder builder(graph, graph::DType::f32, false);
  TensorId x = builder.normalize_image(builder.input("images", {1, 3, 4, 4}, graph::DType::u8), {});
  for (int i = 0; i < 4; ++i) x = builder.relu("relu" + std::to_string(i), x);
  const Plan plan = make_plan(graph, FakeBackend{});
  for (std::size_t a = 0; a < plan.placements.size(); ++a) {
    for (std::size_t b = a + 1; b < plan.placements.size(); ++b) {
      if (plan.placements[a].region != Region::arena || plan.placements[b].region != Region::arena) continue;
      EXPECT_FALSE(overlap(plan.placements[a], plan.placements[b])) << a << " and " << b;
    }
  }
}

TEST(MemoryUse, AddsUp) {
  Options options = small("resnet18");
  options.model.classes = 1000;
  options.ema = true;
  const MemoryUse use = memory_use(make_plan(options, FakeBackend{}));
  EXPECT_EQ(use.parameters, 11'689'512U * 4);
  EXPECT_EQ(use.optimizer, use.parameters + 3U * 4) << "momentum, the loss scale and two counters";
  EXPECT_EQ(use.statistics, 4800U * 2 * 4) << "mean and variance of 4800 channels";
  EXPECT_EQ(use.average, use.parameters + use.statistics);
  EXPECT_GE(use.gradients, use.parameters);
  EXPECT_LT(use.gradients, use.parameters + 64U * 64U) << "62 gradients, each padded by less than a line";
  EXPECT_EQ(use.total(), use.parameters + use.statistics + use.optimizer + use.average + use.gradients +
                             use.activations + use.inputs);
}

}  // namespace
}  // namespace redline::plan
