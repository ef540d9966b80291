#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/step.h"

namespace redline::backend::cuda {

namespace {

// Of the mean and its gradient, whole and local.
constexpr int kFrom = operands::AvgPool::x, kTo = operands::AvgPool::y;
static_assert(operands::AvgPoolGrad::dy == kFrom && operands::LocalAvgPoolGrad::dy == kFrom);

Pool pool_of_gradient(const OpView& op) {
  using operands::MaxPoolGrad;
  return pool_of(op.out_tensor(MaxPoolGrad::dx).shape, op.in_tensor(MaxPoolGrad::dy).shape,
                 op.attr<graph::PoolAttr>());
}

Candidates avg_pool_by(decltype(avg_pool)& kernel, const OpView& op, const graph::Tensor& plane) {
  return only(kernel, type_of(plane.dtype), static_cast<int>(plane.shape.n()),
              static_cast<int>(plane.shape.h() * plane.shape.w()), static_cast<int>(plane.shape.c()),
              op.in(kFrom), op.out(kTo));
}

Candidates local_avg_pool_by(decltype(local_avg_pool)& kernel, const OpView& op, const graph::Tensor& large,
                             const graph::Shape& small) {
  const int side = op.attr<graph::LocalPoolAttr>().kernel;
  return only(kernel, type_of(large.dtype), pool_of(large.shape, small, {side, side, 0}), op.in(kFrom),
              op.out(kTo));
}

}  // namespace

// affine_pool has the same outputs, and the affine and what was picked besides.
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

Candidates make_pool_gradient(const GroupView& group, Shared&) {
  using operands::MaxPoolGrad;
  const OpView op = group.op(OpKind::max_pool_grad);
  const PooledGradient pooled{pool_of_gradient(op), op.in(MaxPoolGrad::dy),
                              op.in<std::uint8_t>(MaxPoolGrad::index)};
  return only(pooled_norm_grad_apply, type_of(op.in_tensor(MaxPoolGrad::dy).dtype), pooled,
              norm_grad_apply_of(group.op(OpKind::norm_grad_apply)));
}

Candidates make_avg_pool(const GroupView& group, Shared&) {
  return avg_pool_by(avg_pool, group.op(), group.op().in_tensor(operands::AvgPool::x));
}

Candidates make_avg_pool_grad(const GroupView& group, Shared&) {
  return avg_pool_by(avg_pool_grad, group.op(), group.op().out_tensor(operands::AvgPoolGrad::dx));
}

Candidates make_local_avg_pool(const GroupView& group, Shared&) {
  using operands::LocalAvgPool;
  const OpView op = group.op();
  return local_avg_pool_by(local_avg_pool, op, op.in_tensor(LocalAvgPool::x),
                           op.out_tensor(LocalAvgPool::y).shape);
}

Candidates make_local_avg_pool_grad(const GroupView& group, Shared&) {
  using operands::LocalAvgPoolGrad;
  const OpView op = group.op();
  return local_avg_pool_by(local_avg_pool_grad, op, op.out_tensor(LocalAvgPoolGrad::dx),
                           op.in_tensor(LocalAvgPoolGrad::dy).shape);
}

}  // namespace redline::backend::cuda
