#include "plan/plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "graph/autodiff.h"
#include "graph/operands.h"
#include "plan/arena.h"
#include "plan/fuse.h"

namespace redline::plan {
namespace {

namespace operands = graph::operands;
using graph::DType;
using graph::Graph;
using graph::kNone;
using graph::Op;
using graph::OpKind;
using graph::Phase;
using graph::Tensor;
using graph::TensorId;
using graph::TensorKind;

// Gives a graph in which every gradient is added to a total right after it is made; the totals take the
// gradients' place in `gradients`.
Graph with_accumulation(const Graph& graph, TensorId scalars, graph::Gradients& gradients) {
  Graph out = graph.without_ops();
  std::map<TensorId, TensorId> totals;
  for (auto& [parameter, gradient] : gradients) {
    Tensor total = graph.tensor(gradient);
    total.name += ".total";
    total.dtype = DType::f32;
    gradient = totals[gradient] = out.add_tensor(std::move(total));
  }
  for (const Op& op : graph.ops()) {
    out.add_op(op);
    for (TensorId id : op.outputs) {
      const auto total = totals.find(id);
      if (total == totals.end()) continue;
      out.add_op(
          {OpKind::accumulate, op.name, Phase::backward, {total->second, id, scalars}, {total->second}, {}});
    }
  }
  return out;
}

// The norms of a model made to take the batches of all ranks together.
Graph with_synchronised_norms(const Graph& graph) {
  Graph out = graph.without_ops();
  for (Op op : graph.ops()) {
    if (op.kind == OpKind::batch_norm) {
      auto& attr = std::get<graph::NormAttr>(op.attributes);
      attr.synchronised = attr.training;
    }
    out.add_op(std::move(op));
  }
  return out;
}

bool is_norm_or_bias(const Tensor& parameter) { return parameter.shape.rank() == 1; }

TensorId add_persistent(Graph& graph, TensorId like, const char* suffix, TensorKind kind) {
  Tensor tensor = graph.tensor(like);
  tensor.name += suffix;
  tensor.kind = kind;
  return graph.add_tensor(std::move(tensor));
}

// The scale that keeps fp16 gradients from vanishing, as PyTorch starts it. The other types reach as far down
// as fp32 and need none.
constexpr float kFp16LossScale = 65536.0F;

// The tensors that decide whether a step counts, and those needed to undo one.
struct Guard {
  TensorId loss_scale = kNone, good_steps = kNone, skipped_steps = kNone;
  std::vector<TensorId> statistics, copies;
};

// Returns a graph that begins by copying the running statistics, which the forward pass changes before it is
// known whether the step counts, and whose loss is scaled.
Graph with_guard(const Graph& graph, const Options& options, TensorId scalars, Guard& guard) {
  Graph out = graph.without_ops();
  const float by_type = options.model.dtype == DType::f16 ? kFp16LossScale : 1.0F;
  const float scale = options.loss_scale > 0.0F ? options.loss_scale : by_type;
  guard.loss_scale = out.add_tensor({"loss_scale", {1}, DType::f32, TensorKind::scaler, scale});
  guard.good_steps = out.add_tensor({"good_steps", {1}, DType::f32, TensorKind::scaler});
  guard.skipped_steps = out.add_tensor({"skipped_steps", {1}, DType::f32, TensorKind::scaler});
  std::vector<TensorId> inputs{scalars};
  for (TensorId id : graph.of_kind(TensorKind::statistic)) {
    if (!graph.tensor(id).frozen) guard.statistics.push_back(id);
  }
  for (TensorId id : guard.statistics) {
    inputs.push_back(id);
    Tensor copy = graph.tensor(id);
    copy.name += ".before";
    copy.kind = TensorKind::activation;
    guard.copies.push_back(out.add_tensor(std::move(copy)));
  }
  if (!guard.statistics.empty())
    out.add_op({OpKind::snapshot, "statistics", Phase::forward, std::move(inputs), guard.copies, {}});
  for (Op op : graph.ops()) {
    if (op.kind == OpKind::softmax_cross_entropy) op.inputs.at(operands::Loss::loss_scale) = guard.loss_scale;
    out.add_op(std::move(op));
  }
  return out;
}

std::vector<TensorId> trained_parameters(const Graph& graph) {
  std::vector<TensorId> trained = graph.of_kind(TensorKind::parameter);
  std::erase_if(trained, [&](TensorId id) { return graph.tensor(id).frozen; });
  return trained;
}

// The first ops of the update: decide whether the step counts, and restore the statistics if not.
TensorId add_check(Graph& graph, const Options& options, TensorId scalars, const Guard& guard,
                   const graph::Gradients& gradients) {
  std::vector<TensorId> inputs{scalars, guard.loss_scale, guard.good_steps, guard.skipped_steps};
  for (TensorId parameter : trained_parameters(graph)) inputs.push_back(gradients.at(parameter));
  const auto count = static_cast<std::int64_t>(gradients.size());
  const TensorId check = graph.add_tensor({"check", {graph::kStepChecks}, DType::f32, TensorKind::metric});
  const TensorId squares =
      graph.add_tensor({"gradient_squares", {count}, DType::f32, TensorKind::activation});
  graph::ScaleAttr attr;
  attr.dynamic = options.model.dtype == DType::f16;
  attr.clip_norm = options.clip_norm;
  graph.add_op({OpKind::gradient_check,
                "gradients",
                Phase::update,
                std::move(inputs),
                {check, squares, guard.loss_scale, guard.good_steps, guard.skipped_steps},
                attr});
  if (guard.statistics.empty()) return check;
  std::vector<TensorId> restored{check};
  restored.insert(restored.end(), guard.copies.begin(), guard.copies.end());
  restored.insert(restored.end(), guard.statistics.begin(), guard.statistics.end());
  graph.add_op({OpKind::restore, "statistics", Phase::update, std::move(restored), guard.statistics, {}});
  return check;
}

// In learning rates.
float rate_of(const Tensor& parameter, const Options& options) {
  const std::string& model = options.model.model;
  const graph::Depth depth = graph::depth_of(parameter.name, model);
  const int last = graph::layer_count(model) - 1;
  const double decayed = std::pow(static_cast<double>(options.layer_decay), last - depth.layer);
  return static_cast<float>(depth.layer == last ? options.head_rate * decayed : decayed);
}

// A trust ratio means nothing for norms and biases: LARS leaves them to plain SGD, and LAMB to AdamW.
OpKind optimizer_op(OptimizerKind optimizer, bool norm_or_bias) {
  switch (optimizer) {
    case OptimizerKind::lars:
      return norm_or_bias ? OpKind::sgd : OpKind::lars;
    case OptimizerKind::lamb:
      return norm_or_bias ? OpKind::adamw : OpKind::lamb;
    case OptimizerKind::adamw:
      return OpKind::adamw;
    default:
      return OpKind::sgd;
  }
}

void add_optimizer(Graph& graph, const Options& options, TensorId scalars, TensorId check, TensorId parameter,
                   TensorId gradient) {
  const Tensor tensor = graph.tensor(parameter);
  const bool spared = is_norm_or_bias(tensor) && !options.decay_norm_and_bias;
  const float decay = spared ? 0.0F : options.weight_decay, rate = rate_of(tensor, options);
  const OpKind kind = optimizer_op(options.optimizer, is_norm_or_bias(tensor));
  std::vector<TensorId> inputs{parameter, gradient}, outputs{parameter};
  const auto add_state = [&](const char* suffix) {
    inputs.push_back(add_persistent(graph, parameter, suffix, TensorKind::momentum));
    outputs.push_back(inputs.back());
  };
  graph::Attributes attributes;
  if (kind == OpKind::adamw || kind == OpKind::lamb) {
    add_state(".exp_avg");
    add_state(".exp_avg_sq");
    attributes = graph::AdamAttr{options.beta1, options.beta2, options.epsilon, decay, rate};
  } else {
    add_state(".momentum");
    if (kind == OpKind::lars)
      attributes =
          graph::LarsAttr{options.momentum, decay, options.lars_trust, graph::LarsAttr{}.epsilon, rate};
    else
      attributes = graph::SgdAttr{options.momentum, decay, options.nesterov, rate};
  }
  inputs.insert(inputs.end(), {scalars, check});
  graph.add_op({kind, tensor.name, Phase::update, std::move(inputs), std::move(outputs), attributes});
}

void add_update(Plan& plan, const Options& options, const Guard& guard, const graph::Gradients& gradients) {
  Graph& graph = plan.model.graph;
  plan.check = add_check(graph, options, plan.model.scalars, guard, gradients);
  for (TensorId parameter : trained_parameters(graph)) {
    add_optimizer(graph, options, plan.model.scalars, plan.check, parameter, gradients.at(parameter));
  }
  if (!options.ema) return;
  for (TensorKind kind : {TensorKind::parameter, TensorKind::statistic}) {
    for (TensorId value : graph.of_kind(kind)) {
      const TensorId average = add_persistent(graph, value, ".ema", TensorKind::average);
      graph.add_op({OpKind::ema,
                    graph.tensor(value).name,
                    Phase::update,
                    {average, value, plan.model.scalars, plan.check},
                    {average},
                    {}});
    }
  }
}

// All-reduce ops go in front of the update, one per bucket, once buckets are known.
void add_all_reduce(Plan& plan, DType wire) {
  Graph out = plan.graph().without_ops();
  bool added = false;
  for (const Op& op : plan.graph().ops()) {
    if (op.phase == Phase::update && !std::exchange(added, true)) {
      for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
        out.add_op({OpKind::all_reduce, "bucket" + std::to_string(b), Phase::update,
                    plan.buckets[b].gradients, plan.buckets[b].gradients, graph::ReduceAttr{wire}});
      }
    }
    out.add_op(op);
  }
  plan.model.graph = std::move(out);
}

void validate(const Options& options) {
  if (options.accumulate < 1) throw UsageError("--accumulate {} must be at least 1", options.accumulate);
  if (!options.model.training && (options.optimizer != OptimizerKind::none || options.ema)) {
    throw UsageError("an evaluation plan has no optimizer");
  }
}

// The type of activations: that of the first convolution's input.
DType activation_type(const Graph& graph) {
  const auto conv = std::ranges::find(graph.ops(), OpKind::conv, &Op::kind);
  return conv == graph.ops().end() ? DType::f32 : graph.tensor(conv->inputs[operands::Conv::x]).dtype;
}

// Completes a plan that has all its ops.
void group_and_place(Plan& plan, const Capabilities& backend, std::size_t bucket_bytes, bool keep_all) {
  plan.weights = backend.weight_copy(activation_type(plan.graph()));
  plan.groups = find_groups(plan.graph(), backend.group_rows(), backend.side_stream_groups());
  plan.update_begin = static_cast<int>(std::ranges::count_if(plan.groups, [&](const Group& group) {
    return plan.graph().ops()[static_cast<std::size_t>(group.ops.front())].phase != Phase::update;
  }));
  place_tensors(plan, backend, bucket_bytes, keep_all);
}

std::vector<std::string> count_fused(const Graph& graph) {
  std::map<std::string_view, int> counts;
  for (const Op& op : graph.ops()) {
    switch (op.kind) {
      case OpKind::norm_stats:
      case OpKind::affine_act:
      case OpKind::affine_pool:
      case OpKind::norm_grad_stats:
      case OpKind::norm_grad_apply:
        ++counts[name_of(op.kind)];
        break;
      default:
        break;
    }
  }
  std::vector<std::string> lines;
  for (const auto& [name, count] : counts) lines.push_back(fmt::format("{}: {}", name, count));
  return lines;
}

}  // namespace

Plan make_plan(const Options& options, const Capabilities& backend) {
  validate(options);
  Plan plan;
  plan.model = graph::build_resnet(options.model);
  if (options.synchronised_norms && options.model.training) {
    if (!backend.synchronises_norms())
      throw UnavailableError("--sync-bn: this device does not support it; leave it out");
    plan.model.graph = with_synchronised_norms(plan.model.graph);
  }
  if (options.fuse) {
    Fused fused = fuse(plan.model.graph, backend, options.model.dtype);
    plan.model.graph = std::move(fused.graph);
    plan.fused_ops = fused.model_ops;
  }
  if (options.model.training) {
    graph::Gradients gradients =
        differentiate(plan.model.graph, backend.weight_gradient(options.model.dtype));
    if (options.accumulate > 1) {
      plan.model.graph = with_accumulation(plan.model.graph, plan.model.scalars, gradients);
    }
    if (options.optimizer != OptimizerKind::none) {
      Guard guard;
      plan.model.graph = with_guard(plan.model.graph, options, plan.model.scalars, guard);
      add_update(plan, options, guard, gradients);
    }
  }
  plan.fusions = count_fused(plan.graph());
  if (options.recompute != Recompute::none) {
    const std::vector<Group> groups =
        find_groups(plan.graph(), backend.group_rows(), backend.side_stream_groups());
    plan.model.graph = recomputed(plan.graph(), groups, options.recompute);
  }
  group_and_place(plan, backend, options.bucket_bytes, /*keep_all=*/false);
  if (options.all_reduce) {
    add_all_reduce(plan, options.gradient_wire);
    group_and_place(plan, backend, options.bucket_bytes, /*keep_all=*/false);
  }
  return plan;
}

Plan make_plan(Graph graph, const Capabilities& backend) {
  Plan plan;
  plan.model.graph = std::move(graph);
  group_and_place(plan, backend, Options{}.bucket_bytes, /*keep_all=*/true);
  return plan;
}

MemoryUse memory_use(const Plan& plan) {
  MemoryUse use;
  use.activations = plan.arena_bytes;
  use.gradients = plan.gradient_bytes;
  for (std::size_t i = 0; i < plan.placements.size(); ++i) {
    const Placement& placement = plan.placements[i];
    if (placement.region == Region::none) continue;
    switch (plan.graph().tensors()[i].kind) {
      case TensorKind::parameter:
        use.parameters += placement.bytes;
        break;
      case TensorKind::statistic:
        use.statistics += placement.bytes;
        break;
      case TensorKind::momentum:
      case TensorKind::scaler:
        use.optimizer += placement.bytes;
        break;
      case TensorKind::average:
        use.average += placement.bytes;
        break;
      case TensorKind::input:
      case TensorKind::metric:
        use.inputs += placement.bytes;
        break;
      case TensorKind::gradient:
      case TensorKind::activation:
        break;  // counted as gradient memory and arena
    }
  }
  return use;
}

graph::TensorId sums_of(const graph::Op& op) {
  return op.kind == graph::OpKind::conv ? operands::out(op, operands::Conv::sums) : graph::kNone;
}

}  // namespace redline::plan
