// Ops that one kernel does together, where the plan puts them side by side (patterns.h): each merge spares a
// pass over memory.
#include <algorithm>

#include "backend/cuda/kernels/blended.h"
#include "backend/cuda/kernels/expand.h"
#include "backend/cuda/kernels/expand_grad.h"
#include "backend/cuda/kernels/pointwise.h"
#include "backend/cuda/patterns.h"
#include "backend/cuda/step.h"

namespace redline::backend::cuda {
namespace {

const Step kNothing;

bool overlap(const plan::Plan& plan, const Places& places, TensorId a, TensorId b) {
  if (a == graph::kNone || b == graph::kNone) return false;
  const std::byte *pa = places.address(a), *pb = places.address(b);
  return pa < pb + plan.placement(b).bytes && pb < pa + plan.placement(a).bytes;
}

std::int64_t rows_of(const graph::Shape& shape) { return shape.n() * shape.h() * shape.w(); }

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

// What a blended product reads and writes.
struct BlendedTensors {
  TensorId u, v, made, weights, out;
};

std::string shape_name(const plan::Plan& plan, const BlendedTensors& tensors) {
  const graph::Tensor& from = plan.graph().tensor(tensors.v);
  return fmt::format("{}_{}x{}x{}", name_of(from.dtype), rows_of(from.shape), from.shape.c(),
                     plan.graph().tensor(tensors.out).shape.c());
}

// `work` lacks what is the same for both kinds. Empty where tensors lie in each other's way: what it writes
// and `read`, which others of its rows still read, besides the tensors themselves.
Step blended_step(const plan::Plan& plan, Blended work, const BlendedTensors& tensors,
                  std::initializer_list<TensorId> read, const Places& places, Shared& shared) {
  const auto [u, v, made, weights, out] = tensors;
  const auto in_the_way = [&](TensorId id) {
    return overlap(plan, places, made, id) || overlap(plan, places, out, id);
  };
  const bool over_u = places.address(made) == places.address(u);
  if (shared.device().major != 9 || in_the_way(v) || overlap(plan, places, out, made) ||
      overlap(plan, places, out, u) || (!over_u && overlap(plan, places, made, u)) ||
      std::ranges::any_of(read, in_the_way)) {
    return kNothing;
  }
  const graph::Tensor &from = plan.graph().tensor(v), &to = plan.graph().tensor(out);
  work.type = type_of(from.dtype);
  work.rows = rows_of(from.shape);
  work.wide = static_cast<int>(from.shape.c());
  work.narrow = static_cast<int>(to.shape.c());
  work.u = places.address(u);
  work.v = places.address(v);
  work.made = places.address(made);
  work.weights = places.weights(weights, from.dtype);
  work.out = places.address(out);
  const BlendedLaunch launch(work, shared.device());
  shared.need(launch.partials() * sizeof(float));
  return [launch, &shared](cudaStream_t stream) { launch.run(shared.reduce_space(), stream); };
}

Ways merge_through_norm(const plan::Plan& plan, const GradientThroughNorm& way, const Places& places,
                        Shared& shared) {
  const OpView apply(plan, *way.apply, places.address), sums(plan, *way.after.sums, places.address);
  Blended work;
  work.kind = Blended::Kind::gradient;
  work.after = norm_grad_apply_of(apply);
  work.before_y = sums.in(2);
  work.before_affine = sums.in<float>(3);
  work.before_saved = sums.in<float>(5);
  work.dgamma = sums.out<float>(0);
  work.dbeta = sums.out<float>(1);
  const BlendedTensors tensors{way.apply->inputs[0], way.apply->inputs[1], way.apply->outputs[0],
                               way.after.gradient->inputs[1], way.after.gradient->outputs[0]};
  const Step step = blended_step(plan, work, tensors, {way.after.sums->inputs[2]}, places, shared);
  if (!step) return {};
  return {"through_norm_" + shape_name(plan, tensors), {{kNothing, kNothing, step}}, {{}, {}, {0, 1, 2}}};
}

Ways merge_whole_gradient(const plan::Plan& plan, std::size_t position, const WholeGradient& whole,
                          const Places& places, Shared& shared) {
  const OpView apply(plan, *whole.apply, places.address), input(plan, *whole.input, places.address);
  const OpView weight(plan, *whole.weight, places.address);
  const graph::DType dtype = apply.in_tensor(1).dtype;
  ExpandGrad work;
  if (graph::size_of(dtype) != 2) return {};
  work.type = type_of(dtype);
  if (!Expand::possible(work.type, shared.device())) return {};
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

NormFinalize finalize_of(const NormAndUse& pair, const plan::Plan& plan, const Places& places,
                         const Shared& shared) {
  const OpView norm(plan, *pair.norm, places.address);
  return norm_finalize_of(norm, norm.in<float>(5), norm.out<float>(0), shared);
}

// What timing a norm must not change: its running statistics.
std::vector<std::span<std::byte>> kept_of(const NormAndUse& pair, const plan::Plan& plan,
                                          const Places& places) {
  std::vector<std::span<std::byte>> kept;
  for (const TensorId moved : {pair.norm->inputs[3], pair.norm->inputs[4]})
    kept.push_back({places.address(moved), plan.placement(moved).bytes});
  return kept;
}

// The norm's scale and bias, worked out where they are first applied.
Ways merge_affine(const plan::Plan& plan, const NormAndUse& pair, const Places& places,
                  const Shared& shared) {
  for (TensorId written : pair.act->outputs) {
    if (overlap(plan, places, written, pair.sums())) return {};
  }
  const OpView act(plan, *pair.act, places.address);
  return {"", {{kNothing, make_affine_act(act, finalize_of(pair, plan, places, shared))}}, {{}, {0, 1}}};
}

// With `norm`, its scale and bias are worked out there too.
Ways merge_join(const plan::Plan& plan, const JoinAndConv& pair, const NormAndUse* norm, const Places& places,
                Shared& shared) {
  const OpView act(plan, *pair.act, places.address), conv(plan, *pair.conv, places.address);
  Blended work;
  work.kind = Blended::Kind::join;
  work.affine = act.in<float>(1);
  work.u_affine = act.in<float>(3);
  work.mask = act.out<std::uint8_t>(1);
  work.sums = conv.out<float>(1);
  if (norm != nullptr) {
    work.finalizes = true;
    work.norm = finalize_of(*norm, plan, places, shared);
  }
  const BlendedTensors tensors{pair.act->inputs[2], pair.act->inputs[0], pair.act->outputs[0],
                               pair.conv->inputs[1], pair.conv->outputs[0]};
  const TensorId norm_sums = norm == nullptr ? graph::kNone : norm->sums();
  const Step step = blended_step(plan, work, tensors, {norm_sums}, places, shared);
  if (!step || overlap(plan, places, id_of(pair.act->outputs, 1), norm_sums)) return {};
  if (norm == nullptr) return {"join_" + shape_name(plan, tensors), {{kNothing, step}}, {{}, {0, 1}}};
  Ways ways{"norm_join_" + shape_name(plan, tensors), {{kNothing, kNothing, step}}, {{}, {}, {0, 1, 2}}};
  ways.kept = kept_of(*norm, plan, places);
  return ways;
}

Expand expand_of(const OpView& conv, const std::byte* weights) {
  Expand work;
  work.type = type_of(conv.in_tensor(0).dtype);
  work.rows = rows_of(conv.out_tensor(0).shape);
  work.x = conv.in(0);
  work.weights = weights;
  work.out = conv.out(0);
  work.sums = conv.out<float>(1);
  return work;
}

Step expand_step(const Expand& work, Shared& shared) {
  const ExpandLaunch launch(work, shared.device());
  shared.need(launch.partials() * sizeof(float));
  return [launch, &shared](cudaStream_t stream) { launch.run(shared.reduce_space(), stream); };
}

Ways merge_expansion(const plan::Plan& plan, const NormAndUse& pair, const ActivatedExpansion& expansion,
                     const Places& places, Shared& shared) {
  const OpView norm(plan, *pair.norm, places.address), conv(plan, *expansion.conv, places.address);
  const graph::DType dtype = conv.in_tensor(0).dtype;
  const TensorId out = expansion.conv->outputs[0];
  if (graph::size_of(dtype) != 2 || !Expand::possible(type_of(dtype), shared.device()) ||
      overlap(plan, places, out, pair.norm->inputs[0]) || overlap(plan, places, out, pair.sums())) {
    return {};
  }
  Expand work = expand_of(conv, places.weights(expansion.conv->inputs[1], dtype));
  work.x = norm.in(0);
  work.before = true;
  work.norm = finalize_of(pair, plan, places, shared);
  Ways ways{fmt::format("activated_expand_{}_{}", name_of(dtype), work.rows),
            {{kNothing, kNothing, expand_step(work, shared)}},
            {{}, {}, {0, 1, 2}}};
  ways.needs = expansion.gradient;
  ways.kept = kept_of(pair, plan, places);
  return ways;
}

}  // namespace

std::vector<Ways> merge_steps(const plan::Plan& plan, std::size_t position, const Places& places,
                              Shared& shared) {
  const graph::Graph& graph = plan.graph();
  std::vector<Ways> found;
  if (const WholeGradient whole(graph, position); whole) {
    found.push_back(merge_whole_gradient(plan, position, whole, places, shared));
  } else if (const GradientThroughNorm way(graph, position); way) {
    found.push_back(merge_through_norm(plan, way, places, shared));
  } else if (const GradientAndSums pair(graph, position); pair) {
    found.push_back(merge_gradient(plan, pair, places, shared));
  } else if (const NormAndUse norm(graph, position); norm) {
    found.push_back(merge_affine(plan, norm, places, shared));
    if (const ActivatedExpansion expansion(graph, position, norm); expansion)
      found.push_back(merge_expansion(plan, norm, expansion, places, shared));
    if (const JoinAndConv join(graph, position + 1); join)
      found.push_back(merge_join(plan, join, &norm, places, shared));
  } else if (const JoinAndConv join(graph, position); join) {
    // Where the norm comes just before, all three are done together or only the first two.
    if (position == 0 || !NormAndUse(graph, position - 1))
      found.push_back(merge_join(plan, join, nullptr, places, shared));
  } else {
    found.push_back(merge_stem(plan, position, places));
  }
  std::erase_if(found, [](const Ways& ways) { return ways.ways.empty(); });
  return found;
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
  std::vector<Step> steps = pointwise_steps(work, shared);
  if (work.k == Expand::kFrom && work.n == Expand::kTo) {
    steps.push_back(expand_step(expand_of(op, weights), shared));
  }
  return steps;
}

}  // namespace redline::backend::cuda
