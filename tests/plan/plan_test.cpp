#include "plan/plan.h"

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
    add("overlapping", [](Variant& v) { v.backend.beside = 2; });
    add("overlapping and accumulating", [](Variant& v) {
      v.backend.beside = 1;
      v.options.accumulate = 2;
    });
    add("overlapping and merging", [](Variant& v) {
      v.backend.beside = 1;
      v.backend.stays = 2;
    });
    add("remaking", [](Variant& v) { v.backend.remade = true; });
    add("bf16", [](Variant& v) { v.options.model.dtype = graph::DType::bf16; });
    add("accumulating", [](Variant& v) { v.options.accumulate = 4; });
    add("ema and reduce", [](Variant& v) { v.options.ema = v.options.all_reduce = true; });
    add("small buckets", [](Variant& v) { v.options.bucket_bytes = 100'000; });
    add("lars", [](Variant& v) { v.options.optimizer = OptimizerKind::lars; });
    add("gradients only", [](Variant& v) { v.options.optimizer = OptimizerKind::none; });
    add("evaluation", [](Variant& v) {
      v.options.model.training = false;
      v.options.optimizer = OptimizerKind::none;
    });
  }
  return all;
}

bool overlap(const Placement& a, const Placement& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// Two tensors may lie in the same place when one dies before the other is born, or when the op where they
// meet writes one over the other element by element.
bool may_share(const Plan& plan, TensorId first, TensorId second) {
  const Placement &a = plan.placement(first), &b = plan.placement(second);
  if (a.last_op < b.first_op || b.last_op < a.first_op) return true;
  const bool a_first = a.last_op == b.first_op;
  if (!a_first && b.last_op != a.first_op) return false;
  const Op& op = plan.graph().ops()[static_cast<std::size_t>(a_first ? b.first_op : a.first_op)];
  const TensorId source = a_first ? first : second, target = a_first ? second : first;
  const std::set<OpKind> elementwise = {
      OpKind::relu,           OpKind::add, OpKind::affine_act, OpKind::relu_grad, OpKind::norm_grad_stats,
      OpKind::norm_grad_apply};
  return elementwise.contains(op.kind) && a.offset == b.offset && a.bytes == b.bytes &&
         std::ranges::count(op.inputs, source) == 1 && std::ranges::count(op.outputs, target) == 1;
}

TEST(Arena, NoTwoLiveTensorsShareMemory) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    const Plan plan = make_plan(v.options, v.backend);
    const auto count = static_cast<TensorId>(plan.placements.size());
    for (TensorId a = 0; a < count; ++a) {
      if (plan.placement(a).region != Region::arena) continue;
      EXPECT_LE(plan.placement(a).offset + plan.placement(a).bytes, plan.arena_bytes);
      for (TensorId b = a + 1; b < count; ++b) {
        if (plan.placement(b).region != Region::arena || !overlap(plan.placement(a), plan.placement(b)))
          continue;
        EXPECT_TRUE(may_share(plan, a, b))
            << plan.graph().tensor(a).name << " and " << plan.graph().tensor(b).name;
      }
    }
  }
}

TEST(Arena, LifetimesCoverEveryUse) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    const Plan plan = make_plan(v.options, v.backend);
    const auto& ops = plan.graph().ops();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (const auto* ids : {&ops[i].inputs, &ops[i].outputs}) {
        for (TensorId id : *ids) {
          if (id == kNone || v.backend.remakes(plan.graph(), id)) continue;
          const Placement& placement = plan.placement(id);
          EXPECT_NE(placement.region, Region::none) << plan.graph().tensor(id).name;
          EXPECT_LE(placement.first_op, static_cast<int>(i));
          EXPECT_GE(placement.last_op, static_cast<int>(i));
          EXPECT_EQ(placement.bytes, stored_bytes(plan.graph().tensor(id), placement.layout));
        }
      }
    }
    EXPECT_EQ(plan.placement(plan.model.logits).last_op, static_cast<int>(ops.size()) - 1)
        << "the host reads the logits";
  }
}

TEST(Overlap, HoldsMemoryUntilTheJoin) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    const Plan plan = make_plan(v.options, v.backend);
    const auto& ops = plan.graph().ops();
    const auto gradients =
        std::ranges::count_if(ops, [](const Op& op) { return op.kind == OpKind::conv_grad_weight; });
    EXPECT_EQ(std::ranges::count_if(plan.beside,
                                    [&](const Beside& beside) {
                                      return ops[static_cast<std::size_t>(beside.op)].kind ==
                                             OpKind::conv_grad_weight;
                                    }),
              v.backend.beside > 0 ? gradients : 0);
    for (const Beside& beside : plan.beside) {
      EXPECT_GT(beside.join, beside.op);
      EXPECT_LE(beside.join, plan.update_begin);
      const Op& op = ops[static_cast<std::size_t>(beside.op)];
      for (const auto* ids : {&op.inputs, &op.outputs}) {
        for (TensorId id : *ids) {
          if (id == kNone) continue;
          EXPECT_GE(plan.placement(id).last_op, beside.join - 1);
        }
      }
      // Nobody else reads what it writes before the join; a gradient and its addition to a total run in
      // order.
      for (int later = beside.op + 1; later < beside.join; ++later) {
        const Op& reader = ops[static_cast<std::size_t>(later)];
        if (reader.kind == OpKind::accumulate) continue;
        for (TensorId written : op.outputs) EXPECT_EQ(std::ranges::count(reader.inputs, written), 0);
      }
    }
  }
}

// Its y is read by what comes two ops later.
TEST(Arena, KeepsTheInputOfANormsGradientThatIsDoneLater) {
  FakeBackend backend;
  backend.beside = 2;
  backend.stays = 2;
  const Plan plan = make_plan(small("resnet50"), backend);
  const auto& ops = plan.graph().ops();
  int kept = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != OpKind::norm_grad_apply) continue;
    const Placement& y = plan.placement(ops[i].inputs[1]);
    const int stays = backend.input_stays(plan.graph(), static_cast<int>(i));
    EXPECT_EQ(y.last_op, static_cast<int>(i) + stays) << ops[i].name;
    kept += stays > 0 ? 1 : 0;
    for (std::size_t later = i; stays > 0 && later <= i + 2; ++later) {
      for (const TensorId made : ops[later].outputs) {
        if (made == kNone || plan.placement(made).region != Region::arena) continue;
        EXPECT_FALSE(overlap(y, plan.placement(made)))
            << plan.graph().tensor(made).name << " is made over the input of " << ops[i].name;
      }
    }
  }
  EXPECT_EQ(kept, 20) << "the last norm of each of the 16 blocks, and of the four shortcuts";
}

TEST(Arena, HasNoPlaceForWhatIsRemade) {
  FakeBackend backend;
  const std::size_t before = make_plan(small("resnet50"), backend).arena_bytes;
  backend.remade = true;
  const Plan plan = make_plan(small("resnet50"), backend);
  const Plan all_kept = make_plan(plan.graph(), backend);
  std::size_t remade = 0, bytes = 0;
  for (std::size_t i = 0; i < plan.placements.size(); ++i) {
    if (!backend.remakes(plan.graph(), static_cast<TensorId>(i))) continue;
    EXPECT_EQ(plan.placements[i].region, Region::none) << plan.graph().tensors()[i].name;
    EXPECT_NE(all_kept.placements[i].region, Region::none) << plan.graph().tensors()[i].name;
    ++remade;
    bytes += plan.placements[i].bytes;
  }
  EXPECT_EQ(remade, 32U) << "the first two of each of the 16 blocks; the stem's goes into its pool";
  // All of them would be there when backward begins; the peak may be a little later.
  EXPECT_LT(plan.arena_bytes, before - bytes * 9 / 10);
}

// A device may clear them all when the step begins, and do the norm that reads them with what follows it.
TEST(Arena, KeepsConvolutionsSumsFreeFromTheBeginningAndForTwoOpsMore) {
  FakeBackend backend;
  backend.sums = true;
  const Plan plan = make_plan(small("resnet18"), backend);
  const auto& ops = plan.graph().ops();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != OpKind::norm_stats) continue;
    EXPECT_GE(plan.placement(ops[i].inputs.at(5)).last_op, static_cast<int>(i) + 2) << ops[i].name;
  }
  int convolutions = 0;
  for (const Op& op : ops) {
    const TensorId sums = sums_of(op);
    EXPECT_EQ(sums != graph::kNone, op.kind == OpKind::conv) << op.name;
    if (sums == graph::kNone) continue;
    ++convolutions;
    EXPECT_EQ(plan.placement(sums).first_op, 0) << op.name;
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
      EXPECT_GE(bucket.ready_after_op, ready) << "backward completes buckets in order";
      EXPECT_LT(bucket.ready_after_op, plan.update_begin);
      ready = bucket.ready_after_op;
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
    const std::size_t parameters = plan.graph().of_kind(TensorKind::parameter).size();
    EXPECT_EQ(seen.size(), v.options.model.training ? parameters : 0U);
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
    for (std::size_t i = 0; i < ops.size(); ++i) {
      EXPECT_EQ(ops[i].phase == Phase::update, static_cast<int>(i) >= plan.update_begin) << ops[i].name;
      if (ops[i].kind == OpKind::sgd || ops[i].kind == OpKind::lars) updated.insert(ops[i].outputs[0]);
    }
    const auto parameters = plan.graph().of_kind(TensorKind::parameter);
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
      if (op.kind == OpKind::sgd || op.kind == OpKind::lars || op.kind == OpKind::ema) {
        EXPECT_TRUE(checked);
        EXPECT_EQ(op.inputs.back(), plan.check);
      }
      if (op.kind == OpKind::sgd || op.kind == OpKind::lars) {
        EXPECT_TRUE(seen.contains(op.inputs[1])) << op.name;
      }
      if (op.kind == OpKind::restore) {
        EXPECT_EQ(op.outputs, plan.graph().of_kind(TensorKind::statistic));
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
