#include "plan/plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "graph/autodiff.h"
#include "plan/arena.h"
#include "plan/fuse.h"

namespace redline::plan {
namespace {

using graph::DType;
using graph::Graph;
using graph::Op;
using graph::OpKind;
using graph::Phase;
using graph::Tensor;
using graph::TensorId;
using graph::TensorKind;

// Gives a graph in which every gradient is added to a total right after it is made; the totals take the
// gradients' place in `gradients`.
Graph with_accumulation(const Graph& graph, TensorId scalars, graph::Gradients& gradients) {
  Graph out;
  for (const Tensor& tensor : graph.tensors()) out.add_tensor(tensor);
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

bool is_norm_or_bias(const Tensor& parameter) { return parameter.shape.rank() == 1; }

TensorId add_persistent(Graph& graph, TensorId like, const char* suffix, TensorKind kind) {
  Tensor tensor = graph.tensor(like);
  tensor.name += suffix;
  tensor.kind = kind;
  return graph.add_tensor(std::move(tensor));
}

void add_optimizer(Graph& graph, const Options& options, TensorId scalars, TensorId parameter,
                   TensorId gradient) {
  const bool spared = is_norm_or_bias(graph.tensor(parameter)) && !options.decay_norm_and_bias;
  const float decay = spared ? 0.0F : options.weight_decay;
  const TensorId velocity = add_persistent(graph, parameter, ".momentum", TensorKind::momentum);
  const std::string name = graph.tensor(parameter).name;
  // LARS leaves norms and biases to plain SGD: a trust ratio means nothing for them.
  if (options.optimizer == OptimizerKind::lars && !is_norm_or_bias(graph.tensor(parameter))) {
    graph.add_op({OpKind::lars,
                  name,
                  Phase::update,
                  {parameter, gradient, velocity, scalars},
                  {parameter, velocity},
                  graph::LarsAttr{options.momentum, decay, options.lars_trust, 1e-8F}});
  } else {
    graph.add_op({OpKind::sgd,
                  name,
                  Phase::update,
                  {parameter, gradient, velocity, scalars},
                  {parameter, velocity},
                  graph::SgdAttr{options.momentum, decay, options.nesterov}});
  }
}

void add_update(Plan& plan, const Options& options, const graph::Gradients& gradients) {
  Graph& graph = plan.model.graph;
  plan.update_begin = static_cast<int>(graph.ops().size());
  for (TensorId parameter : graph.of_kind(TensorKind::parameter)) {
    add_optimizer(graph, options, plan.model.scalars, parameter, gradients.at(parameter));
  }
  if (!options.ema) return;
  for (TensorKind kind : {TensorKind::parameter, TensorKind::statistic}) {
    for (TensorId value : graph.of_kind(kind)) {
      const TensorId average = add_persistent(graph, value, ".ema", TensorKind::average);
      graph.add_op({OpKind::ema,
                    graph.tensor(value).name,
                    Phase::update,
                    {average, value, plan.model.scalars},
                    {average},
                    {}});
    }
  }
}

// All-reduce ops go in front of the update, one per bucket, once buckets are known.
void add_all_reduce(Plan& plan) {
  Graph out;
  for (const Tensor& tensor : plan.graph().tensors()) out.add_tensor(tensor);
  const auto& ops = plan.graph().ops();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (static_cast<int>(i) == plan.update_begin) {
      for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
        out.add_op({OpKind::all_reduce,
                    "bucket" + std::to_string(b),
                    Phase::update,
                    plan.buckets[b].gradients,
                    plan.buckets[b].gradients,
                    {}});
      }
    }
    out.add_op(ops[i]);
  }
  plan.model.graph = std::move(out);
}

void validate(const Options& options) {
  if (options.accumulate < 1) throw UsageError("--accumulate {} must be at least 1", options.accumulate);
  if (!options.model.training && (options.optimizer != OptimizerKind::none || options.ema)) {
    throw UsageError("an evaluation plan has no optimizer");
  }
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
    plan.update_begin = static_cast<int>(plan.graph().ops().size());
    if (options.optimizer != OptimizerKind::none) add_update(plan, options, gradients);
  } else {
    plan.update_begin = static_cast<int>(plan.graph().ops().size());
  }
  plan.fusions = count_fused(plan.graph());
  place_tensors(plan, backend, options.bucket_bytes, /*keep_all=*/false);
  if (options.all_reduce) {
    add_all_reduce(plan);
    plan.buckets.clear();
    place_tensors(plan, backend, options.bucket_bytes, /*keep_all=*/false);
  }
  return plan;
}

Plan make_plan(Graph graph, const Capabilities& backend) {
  Plan plan;
  plan.model.graph = std::move(graph);
  plan.update_begin = static_cast<int>(
      std::ranges::count_if(plan.graph().ops(), [](const Op& op) { return op.phase != Phase::update; }));
  place_tensors(plan, backend, Options{}.bucket_bytes, /*keep_all=*/true);
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

}  // namespace redline::plan
