#include "backend/cuda/kernels/stem_pool.h"
#include "backend/cuda/step.h"

namespace redline::backend::cuda {

namespace operands = graph::operands;
using graph::OpKind;

namespace {

Pool pool_of_gradient(const OpView& op) {
  using operands::MaxPoolGrad;
  return pool_of(op.out_tensor(MaxPoolGrad::dx).shape, op.in_tensor(MaxPoolGrad::dy).shape,
                 op.attr<graph::PoolAttr>());
}

Candidates avg_pool_by(decltype(avg_pool)& kernel, const OpView& op, const graph::Tensor& plane) {
  return only([op, &plane, &kernel]() -> Step {
    const int images = static_cast<int>(plane.shape.n()), channels = static_cast<int>(plane.shape.c());
    const int pixels = static_cast<int>(plane.shape.h() * plane.shape.w());
    return [=, &kernel, type = type_of(plane.dtype), from = op.in(0), to = op.out(0)](cudaStream_t stream) {
      kernel(type, images, pixels, channels, from, to, stream);
    };
  });
}

Candidates local_avg_pool_by(decltype(local_avg_pool)& kernel, const OpView& op, const graph::Tensor& large,
                             const graph::Shape& small) {
  return only([op, &large, small, &kernel]() -> Step {
    const int side = op.attr<graph::LocalPoolAttr>().kernel;
    return [&kernel, pool = pool_of(large.shape, small, {side, side, 0}), type = type_of(large.dtype),
            from = op.in(0), to = op.out(0)](cudaStream_t stream) { kernel(type, pool, from, to, stream); };
  });
}

}  // namespace

// affine_pool has the same outputs, and the affine and what was picked besides.
Candidates make_max_pool(const GroupView& group, Shared&) {
  using Max = operands::AffinePool;
  return only([op = group.op()]() -> Step {
    const Pool pool =
        pool_of(op.in_tensor(Max::y).shape, op.out_tensor(Max::z).shape, op.attr<graph::PoolAttr>());
    return [pool, type = type_of(op.in_tensor(Max::y).dtype), x = op.in(Max::y),
            affine = op.kind() == OpKind::affine_pool ? op.in<float>(Max::affine) : nullptr,
            y = op.out(Max::z), index = op.out<std::uint8_t>(Max::index), picked = op.out(Max::picked)](
               cudaStream_t stream) { max_pool(type, pool, x, affine, y, index, picked, stream); };
  });
}

Candidates make_max_pool_grad(const GroupView& group, Shared&) {
  using operands::MaxPoolGrad;
  return only([op = group.op()]() -> Step {
    return [pool = pool_of_gradient(op), type = type_of(op.out_tensor(MaxPoolGrad::dx).dtype),
            dy = op.in(MaxPoolGrad::dy), index = op.in<std::uint8_t>(MaxPoolGrad::index),
            dx = op.out(MaxPoolGrad::dx)](cudaStream_t stream) {
      max_pool_grad(type, pool, dy, index, dx, stream);
    };
  });
}

Candidates make_pool_gradient(const GroupView& group, Shared&) {
  using operands::MaxPoolGrad;
  return only([group]() -> Step {
    const OpView op = group.op(OpKind::max_pool_grad);
    const PooledGradient pooled{pool_of_gradient(op), op.in(MaxPoolGrad::dy),
                                op.in<std::uint8_t>(MaxPoolGrad::index)};
    return [=, type = type_of(op.in_tensor(MaxPoolGrad::dy).dtype),
            apply = norm_grad_apply_of(group.op(OpKind::norm_grad_apply))](cudaStream_t stream) {
      pooled_norm_grad_apply(type, pooled, apply, stream);
    };
  });
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
