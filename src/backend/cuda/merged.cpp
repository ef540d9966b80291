// Ops that one kernel does together, where the plan puts them side by side. The tensor between them need not
// be written: each merge spares a pass over memory.
#include <algorithm>

#include "backend/cuda/kernels/expand_grad.h"
#include "backend/cuda/kernels/pointwise.h"
#include "backend/cuda/step.h"

namespace redline::backend::cuda {
namespace {

using graph::Op;
using graph::OpKind;
using graph::TensorId;

const Step kNothing;

const Op* op_at(const graph::Graph& graph, std::size_t position, OpKind kind) {
  const auto& ops = graph.ops();
  return position < ops.size() && ops[position].kind == kind ? &ops[position] : nullptr;
}

TensorId id_of(const std::vector<TensorId>& ids, std::size_t i) {
  return i < ids.size() ? ids[i] : graph::kNone;
}

// Positions of the ops that read a tensor.
std::vector<std::size_t> readers(const graph::Graph& graph, TensorId id) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    if (std::ranges::count(graph.ops()[i].inputs, id) > 0) found.push_back(i);
  }
  return found;
}

bool overlap(const plan::Plan& plan, const Places& places, TensorId a, TensorId b) {
  if (a == graph::kNone || b == graph::kNone) return false;
  const std::byte *pa = places.address(a), *pb = places.address(b);
  return pa < pb + plan.placement(b).bytes && pb < pa + plan.placement(a).bytes;
}

bool is_pointwise(const graph::Graph& graph, const Op& op, TensorId weights) {
  const graph::Shape& w = graph.tensor(weights).shape;
  const auto& attr = op.attr<graph::ConvAttr>();
  return w[2] == 1 && attr.stride == 1 && attr.pad == 0;
}

std::int64_t rows_of(const graph::Shape& shape) { return shape.n() * shape.h() * shape.w(); }

// norm_grad_stats: g, g2, y, affine, mask, saved -> dgamma, dbeta, masked
// norm_grad_apply: g, y, affine, mask, ...
//
// The input gradient of a 1x1 convolution, and the sums of the norm it arrives at. What is written in place
// of the gradient is gated already; the norm's other op gates it again, which changes nothing.
struct GradientAndSums {
  const Op *gradient = nullptr, *sums = nullptr;

  GradientAndSums(const graph::Graph& graph, std::size_t position) {
    const Op* first = op_at(graph, position, OpKind::conv_grad_input);
    const Op* second = op_at(graph, position + 1, OpKind::norm_grad_stats);
    if (first == nullptr || second == nullptr || !is_pointwise(graph, *first, first->inputs[1])) return;
    const TensorId made = first->outputs[0];
    if (second->inputs[0] != made && second->inputs[1] != made) return;
    for (std::size_t reader : readers(graph, made)) {
      const Op& op = graph.ops()[reader];
      const bool gates_again = op.kind == OpKind::norm_grad_apply && op.inputs[0] == made &&
                               op.inputs[2] == second->inputs[3] && op.inputs[3] == second->inputs[4];
      if (reader != position + 1 && !gates_again) return;
    }
    const bool has_mask = second->inputs[4] != graph::kNone, has_affine = second->inputs[3] != graph::kNone;
    const bool two = second->inputs[1] != graph::kNone;
    if (has_mask == has_affine || has_mask != two) return;
    gradient = first;
    sums = second;
  }
  explicit operator bool() const { return gradient != nullptr; }

  bool joins() const { return sums->inputs[4] != graph::kNone; }
  TensorId other() const { return sums->inputs[sums->inputs[0] == gradient->outputs[0] ? 1 : 0]; }
  TensorId written() const {
    const TensorId masked = id_of(sums->outputs, 2);
    return masked == graph::kNone ? gradient->outputs[0] : masked;
  }
};

// A step for each way to launch it.
std::vector<Step> pointwise_steps(const Pointwise& work, Shared& shared) {
  std::vector<Step> steps;
  for (const PointwiseLaunch::Way& way : PointwiseLaunch::ways(work, shared.device())) {
    const PointwiseLaunch launch(work, shared.device(), way);
    shared.need(launch.partials() * sizeof(float));
    steps.push_back([launch, &shared](cudaStream_t stream) { launch.run(shared.reduce_space(), stream); });
  }
  return steps;
}

Ways merge_gradient(const plan::Plan& plan, const GradientAndSums& pair, const Places& places,
                    Shared& shared) {
  const TensorId dy = pair.gradient->inputs[0], y = pair.sums->inputs[2], out = pair.written();
  const graph::Tensor& from = plan.graph().tensor(dy);
  const graph::Tensor& to = plan.graph().tensor(out);
  if (graph::size_of(from.dtype) != 2 || overlap(plan, places, out, dy) || overlap(plan, places, out, y)) {
    return {};
  }
  Pointwise work;
  work.type = type_of(from.dtype);
  work.epilogue = pair.joins() ? Epilogue::joined : Epilogue::gated;
  work.rows = rows_of(to.shape);
  work.k = static_cast<int>(from.shape.c());
  work.n = static_cast<int>(to.shape.c());
  if (PointwiseLaunch::ways(work, shared.device()).empty()) return {};
  const OpView sums(plan, *pair.sums, places.address);
  work.a = places.address(dy);
  work.b = places.weights(pair.gradient->inputs[1], from.dtype);
  work.out = places.address(out);
  work.y = sums.in(2);
  work.affine = sums.in<float>(3);
  work.mask = sums.in<std::uint8_t>(4);
  work.saved = sums.in<float>(5);
  work.other = places.address(pair.other());
  work.first = sums.out<float>(1);
  work.second = sums.out<float>(0);
  Ways ways;
  ways.key = fmt::format("merge_{}_{}_{}x{}x{}", work.epilogue == Epilogue::joined ? "joined" : "gated",
                         name_of(from.dtype), work.rows, work.k, work.n);
  for (const Step& step : pointwise_steps(work, shared)) ways.ways.push_back({step, kNothing});
  ways.does = {{0, 1}, {}};
  return ways;
}

// A norm's gradient and all that follows from it for the convolution in front: norm_grad_apply,
// conv_grad_input, norm_grad_stats where the convolution read an activated norm, conv_grad_weight.
struct WholeGradient {
  const Op *apply = nullptr, *input = nullptr, *sums = nullptr, *weight = nullptr;
  std::size_t activation = 0;  // position of what made the convolution's input; with sums only

  WholeGradient(const graph::Graph& graph, std::size_t position) {
    const Op* first = op_at(graph, position, OpKind::norm_grad_apply);
    if (first == nullptr || first->inputs[2] != graph::kNone || first->inputs[3] != graph::kNone) return;
    input = op_at(graph, position + 1, OpKind::conv_grad_input);
    const GradientAndSums pair(graph, position + 1);
    sums = pair && !pair.joins() ? pair.sums : nullptr;
    weight = op_at(graph, position + (sums == nullptr ? 2 : 3), OpKind::conv_grad_weight);
    const TensorId dy = first->outputs[0];
    if (input == nullptr || weight == nullptr || input->inputs[0] != dy || weight->inputs[1] != dy ||
        readers(graph, dy).size() != 2 || !expands(graph) || (sums != nullptr && !find_activation(graph))) {
      return;
    }
    apply = first;
  }
  explicit operator bool() const { return apply != nullptr; }

  std::size_t step() const { return sums == nullptr ? 1 : 2; }  // that does it all, counted from the first

 private:
  bool expands(const graph::Graph& graph) const {
    const graph::Shape& w = graph.tensor(input->inputs[1]).shape;
    return is_pointwise(graph, *input, input->inputs[1]) && w[0] == ExpandGrad::kTo &&
           w[1] == ExpandGrad::kFrom;
  }
  bool find_activation(const graph::Graph& graph) {
    for (std::size_t i = 0; i < graph.ops().size(); ++i) {
      const Op& op = graph.ops()[i];
      if (op.kind != OpKind::affine_act || op.outputs[0] != weight->inputs[0]) continue;
      activation = i;
      return op.inputs[0] == sums->inputs[2] && op.inputs[1] == sums->inputs[3] &&
             id_of(op.inputs, 2) == graph::kNone && op.attr<graph::ActAttr>().relu;
    }
    return false;
  }
};

Ways merge_whole_gradient(const plan::Plan& plan, std::size_t position, const WholeGradient& whole,
                          const Places& places, Shared& shared) {
  const OpView apply(plan, *whole.apply, places.address), input(plan, *whole.input, places.address);
  const OpView weight(plan, *whole.weight, places.address);
  const graph::DType dtype = apply.in_tensor(1).dtype;
  ExpandGrad work;
  if (graph::size_of(dtype) != 2) return {};
  work.type = type_of(dtype);
  if (!ExpandGrad::possible(work.type, shared.device())) return {};
  const TensorId dx = whole.input->outputs[0], dw = whole.weight->outputs[0];
  const TensorId x = whole.sums == nullptr ? whole.weight->inputs[0] : whole.sums->inputs[2];
  for (const TensorId read : {whole.apply->inputs[0], whole.apply->inputs[1], x}) {
    if (overlap(plan, places, dx, read) || overlap(plan, places, dw, read)) return {};
  }
  // It is written before its turn: only where nothing else lies there until then.
  const plan::Placement& to = plan.placement(dw);
  if (to.region != plan::Region::bucket && to.first_op > static_cast<int>(position)) return {};
  work.rows = rows_of(apply.in_tensor(1).shape);
  work.norm = norm_grad_apply_of(apply);
  work.x = places.address(x);
  work.weights = places.weights(whole.input->inputs[1], dtype);
  work.dx = input.out(0);
  work.dw = weight.out(0);
  work.dw_type = type_of(weight.out_tensor(0).dtype);
  if (whole.sums != nullptr) {
    const OpView sums(plan, *whole.sums, places.address);
    work.before = true;
    work.affine = sums.in<float>(3);
    work.saved = sums.in<float>(5);
    work.dgamma = sums.out<float>(0);
    work.dbeta = sums.out<float>(1);
  }
  const ExpandGradLaunch launch(work, shared.device());
  shared.need(launch.partials() * sizeof(float));
  const std::size_t ops = whole.step() + 2;
  Ways ways{fmt::format("expand_{}_{}_{}", work.before ? "gated" : "plain", name_of(dtype), work.rows),
            {std::vector<Step>(ops)},
            std::vector<std::vector<int>>(ops)};
  ways.ways[0][whole.step()] = [launch, &shared](cudaStream_t stream) {
    launch.run(shared.reduce_space(), stream);
  };
  std::vector<int>& does = ways.does[whole.step()];
  // What the convolution read is made again.
  if (work.before) does.push_back(static_cast<int>(whole.activation) - static_cast<int>(position));
  for (std::size_t i = 0; i < ops; ++i) does.push_back(static_cast<int>(i));
  return ways;
}

// The stem: the norm's gradient gathers the pool's, which is not written.
Ways merge_stem(const plan::Plan& plan, std::size_t position, const Places& places) {
  const Op* pool_op = op_at(plan.graph(), position, OpKind::max_pool_grad);
  const Op* apply_op = op_at(plan.graph(), position + 1, OpKind::norm_grad_apply);
  if (pool_op == nullptr || apply_op == nullptr) return {};
  const TensorId made = pool_op->outputs[0], dy = pool_op->inputs[0], index = pool_op->inputs[1];
  const bool plain = apply_op->inputs[0] == made && apply_op->inputs[2] != graph::kNone &&
                     apply_op->inputs[3] == graph::kNone && readers(plan.graph(), made).size() == 1;
  const TensorId written = apply_op->outputs[0];
  if (!plain || overlap(plan, places, written, dy) || overlap(plan, places, written, index)) {
    return {};
  }
  const OpView pool(plan, *pool_op, places.address), apply(plan, *apply_op, places.address);
  const PooledGradient pooled{
      pool_of(pool.out_tensor(0).shape, pool.in_tensor(0).shape, pool.attr<graph::PoolAttr>()), pool.in(0),
      pool.in<std::uint8_t>(1)};
  const Type type = type_of(pool.in_tensor(0).dtype);
  if (!PooledGradient::possible(pooled.pool, type)) return {};
  const Step gather = [=, result = norm_grad_apply_of(apply)](cudaStream_t stream) {
    pooled_norm_grad_apply(type, pooled, result, stream);
  };
  return {"", {{kNothing, gather}}, {{}, {0, 1}}};
}

// The norm's scale and bias, worked out where they are first applied.
Ways merge_affine(const plan::Plan& plan, std::size_t position, const Places& places, const Shared& shared) {
  const Op* norm_op = op_at(plan.graph(), position, OpKind::norm_stats);
  const Op* act_op = op_at(plan.graph(), position + 1, OpKind::affine_act);
  if (norm_op == nullptr || act_op == nullptr || act_op->inputs[1] != norm_op->outputs[0]) return {};
  const TensorId sums = id_of(norm_op->inputs, 5);
  if (sums == graph::kNone || !norm_op->attr<graph::NormAttr>().training) return {};
  for (TensorId written : act_op->outputs) {
    if (overlap(plan, places, written, sums)) return {};
  }
  const OpView norm(plan, *norm_op, places.address), act(plan, *act_op, places.address);
  return {"",
          {{kNothing,
            make_affine_act(act, norm_finalize_of(norm, norm.in<float>(5), norm.out<float>(0), shared))}},
          {{}, {0, 1}}};
}

}  // namespace

Ways merge_steps(const plan::Plan& plan, std::size_t position, const Places& places, Shared& shared) {
  if (const WholeGradient whole(plan.graph(), position); whole)
    return merge_whole_gradient(plan, position, whole, places, shared);
  if (const GradientAndSums pair(plan.graph(), position); pair)
    return merge_gradient(plan, pair, places, shared);
  if (Ways ways = merge_affine(plan, position, places, shared); !ways.ways.empty()) return ways;
  return merge_stem(plan, position, places);
}

int ops_merged_after(const graph::Graph& graph, std::size_t position) {
  const WholeGradient whole(graph, position);
  return whole ? static_cast<int>(whole.step()) : 0;
}

std::vector<Step> make_pointwise_sums(const OpView& op, std::byte* weights, Shared& shared) {
  const graph::Tensor &x = op.in_tensor(0), &w = op.in_tensor(1), &y = op.out_tensor(0);
  const auto& attr = op.attr<graph::ConvAttr>();
  if (graph::size_of(x.dtype) != 2 || w.shape[2] != 1 || attr.stride != 1 || attr.pad != 0 ||
      op.in_layout(0) != plan::Layout::channels_last) {
    return {};
  }
  Pointwise work;
  work.type = type_of(x.dtype);
  work.rows = rows_of(y.shape);
  work.k = static_cast<int>(x.shape.c());
  work.n = static_cast<int>(y.shape.c());
  if (PointwiseLaunch::ways(work, shared.device()).empty()) return {};
  work.a = op.in(0);
  work.b = weights;
  work.out = op.out(0);
  work.first = op.out<float>(1);
  work.second = work.first + work.n;
  return pointwise_steps(work, shared);
}

}  // namespace redline::backend::cuda
