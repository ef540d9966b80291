#include <algorithm>

#include "backend/cuda/groups.h"

namespace redline::backend::cuda {

namespace {

Pool pool_of_gradient(const OpView& op) {
  using operands::MaxPoolGrad;
  return pool_of(op.out_tensor(MaxPoolGrad::dx).shape, op.in_tensor(MaxPoolGrad::dy).shape,
                 op.attr<graph::PoolAttr>());
}

// The windows whose means are taken: side by side, or one of the size of the image.
Pool windows_of(const OpView& op, const graph::Shape& image) {
  const bool whole = op.kind() == OpKind::avg_pool_grad;
  const int side =
      whole ? static_cast<int>(std::max(image.h(), image.w())) : op.attr<graph::LocalPoolAttr>().kernel;
  const auto windows = [&](std::int64_t size) { return (size + side - 1) / side; };
  return pool_of(image, {image.n(), image.c(), windows(image.h()), windows(image.w())}, {side, side, 0});
}

}  // namespace

// max_pool has the operands of affine_pool, without the affine and `picked`.
Candidates make_max_pool(const GroupView& group, Shared&) {
  using Max = operands::AffinePool;
  const OpView op = group.op();
  const graph::Tensor& y = op.in_tensor(Max::y);
  const float* affine = op.kind() == OpKind::affine_pool ? op.in<float>(Max::affine) : nullptr;
  return only(max_pool, type_of(y.dtype),
              pool_of(y.shape, op.out_tensor(Max::z).shape, op.attr<graph::PoolAttr>()), op.in(Max::y),
              affine, op.out(Max::z), op.out<std::uint8_t>(Max::index), op.out(Max::picked));
}

Candidates make_max_pool_grad(const GroupView& group, Shared&) {
  using operands::MaxPoolGrad;
  const OpView op = group.op();
  return only(max_pool_grad, type_of(op.out_tensor(MaxPoolGrad::dx).dtype), pool_of_gradient(op),
              op.in(MaxPoolGrad::dy), op.in<std::uint8_t>(MaxPoolGrad::index), op.out(MaxPoolGrad::dx));
}

// The stem: the norm's gradient gathers the pool's gradient, which is not stored: max_pool_grad,
// norm_grad_apply.
plan::Group match_pool_gradient(const plan::Node& pool) {
  using operands::MaxPoolGrad;
  using Apply = operands::NormGradApply;
  if (!pool.is(OpKind::max_pool_grad)) return {};
  const graph::TensorId dx = pool.out(MaxPoolGrad::dx);
  const plan::Node apply = pool.reader(MaxPoolGrad::dx, OpKind::norm_grad_apply);
  const Pool shape = pool_of(pool.tensor(dx).shape, pool.tensor(pool.in(MaxPoolGrad::dy)).shape,
                             pool.attr<graph::PoolAttr>());
  if (pool.readers(MaxPoolGrad::dx) != 1 || apply.in(Apply::g) != dx || !apply.has_in(Apply::affine) ||
      apply.has_in(Apply::mask) || !is_even_stem_pool(shape, graph::size_of(pool.tensor(dx).dtype))) {
    return {};
  }
  return {.ops = {pool.position, apply.position}, .unstored = {dx}};
}

Candidates make_pool_gradient(const GroupView& group, Shared&) {
  using operands::MaxPoolGrad;
  const OpView op = group.op(OpKind::max_pool_grad);
  const PooledGradient pooled{pool_of_gradient(op), op.in(MaxPoolGrad::dy),
                              op.in<std::uint8_t>(MaxPoolGrad::index)};
  return only(pooled_norm_grad_apply, type_of(op.in_tensor(MaxPoolGrad::dy).dtype), pooled,
              norm_grad_apply_of(group.op(OpKind::norm_grad_apply)));
}

Candidates make_avg_pool(const GroupView& group, Shared&) {
  using operands::AvgPool;
  const OpView op = group.op();
  const graph::Tensor& x = op.in_tensor(AvgPool::x);
  return only(avg_pool, type_of(x.dtype), static_cast<int>(x.shape.n()),
              static_cast<int>(x.shape.h() * x.shape.w()), static_cast<int>(x.shape.c()), op.in(AvgPool::x),
              op.out(AvgPool::y));
}

Candidates make_local_avg_pool(const GroupView& group, Shared&) {
  using operands::LocalAvgPool;
  const OpView op = group.op();
  const graph::Tensor& x = op.in_tensor(LocalAvgPool::x);
  return only(local_avg_pool, type_of(x.dtype), windows_of(op, x.shape), op.in(LocalAvgPool::x),
              op.out(LocalAvgPool::y));
}

Candidates make_avg_pool_grad(const GroupView& group, Shared&) {
  using Grad = operands::AvgPoolGrad;  // local_avg_pool_grad has the same operands
  const OpView op = group.op();
  const graph::Tensor& dx = op.out_tensor(Grad::dx);
  return only(avg_pool_grad, type_of(dx.dtype), windows_of(op, dx.shape), op.in(Grad::dy), op.out(Grad::dx));
}

}  // namespace redline::backend::cuda
