// Pooling on blocked activations; index bytes have the layout of the pooled tensor.
#include "backend/cpu/blocks.h"
#include "backend/cpu/kernels/dispatch.h"
#include "backend/cpu/step.h"
#include "backend/cpu/threads.h"

namespace redline::backend::cpu {
namespace {

// One task per image and channel block.
struct Planes {
  std::int64_t channels, blocks, count;
  std::size_t in_bytes, out_bytes;  // of one plane
  std::int64_t out_elements;

  Planes(const graph::Shape& in, const graph::Shape& out, graph::DType dtype)
      : channels(in.c()),
        blocks((in.c() + kBlock - 1) / kBlock),
        count(in.n() * blocks),
        in_bytes(static_cast<std::size_t>(in.h() * in.w() * kBlock) * graph::size_of(dtype)),
        out_bytes(static_cast<std::size_t>(out.h() * out.w() * kBlock) * graph::size_of(dtype)),
        out_elements(out.h() * out.w() * kBlock) {}
};

Window window_of(const graph::Shape& in, const graph::Shape& out, const graph::PoolAttr& attr) {
  return {in.h(), in.w(), out.h(), out.w(), attr.kernel, attr.stride, attr.pad};
}

}  // namespace

// max_pool has the operands of affine_pool, without the affine and `picked`.
Step make_max_pool(const OpView& op, Scratch&) {
  using Max = operands::AffinePool;
  const graph::Tensor &x = op.in_tensor(Max::y), &y = op.out_tensor(Max::z);
  const Planes planes(x.shape, y.shape, x.dtype);
  const Window window = window_of(x.shape, y.shape, op.attr<graph::PoolAttr>());
  const std::byte* from = op.in(Max::y);
  std::byte* to = op.out(Max::z);
  auto* index = op.out<std::uint8_t>(Max::index);
  std::byte* picked = op.out(Max::picked);
  const float* affine = op.kind() == graph::OpKind::affine_pool ? op.in<float>(Max::affine) : nullptr;
  return [=, kernels = &activation_kernels(x.dtype)] {
    parallel_for(planes.count, [&](std::int64_t i) {
      Lanes scale, bias;
      if (affine != nullptr) {
        scale = Lanes(affine, i % planes.blocks, planes.channels);
        bias = Lanes(affine + planes.channels, i % planes.blocks, planes.channels);
      }
      const auto plane = static_cast<std::size_t>(i);
      kernels->max_pool(window, from + plane * planes.in_bytes, affine == nullptr ? nullptr : scale.values,
                        bias.values, to + plane * planes.out_bytes,
                        index == nullptr ? nullptr : index + i * planes.out_elements,
                        picked == nullptr ? nullptr : picked + plane * planes.out_bytes);
    });
  };
}

Step make_max_pool_grad(const OpView& op, Scratch&) {
  using operands::MaxPoolGrad;
  const graph::Tensor &dy = op.in_tensor(MaxPoolGrad::dy), &dx = op.out_tensor(MaxPoolGrad::dx);
  const Planes planes(dx.shape, dy.shape, dx.dtype);
  const Window window = window_of(dx.shape, dy.shape, op.attr<graph::PoolAttr>());
  const std::byte* from = op.in(MaxPoolGrad::dy);
  const auto* index = op.in<std::uint8_t>(MaxPoolGrad::index);
  std::byte* to = op.out(MaxPoolGrad::dx);
  return [=, kernels = &activation_kernels(dx.dtype)] {
    parallel_for(planes.count, [&](std::int64_t i) {
      const auto plane = static_cast<std::size_t>(i);
      kernels->max_pool_grad(window, from + plane * planes.out_bytes, index + i * planes.out_elements,
                             to + plane * planes.in_bytes);
    });
  };
}

namespace {

// A global pool's plain side [N,C] has no padding: blocks go through sixteen lanes when C is not a multiple.
struct Global {
  std::int64_t channels, blocks, count, pixels;
  std::size_t element, plane_bytes;

  Global(const graph::Shape& shape, graph::DType dtype)
      : channels(shape.c()),
        blocks((shape.c() + kBlock - 1) / kBlock),
        count(shape.n() * blocks),
        pixels(shape.h() * shape.w()),
        element(graph::size_of(dtype)),
        plane_bytes(static_cast<std::size_t>(pixels * kBlock) * element) {}

  std::size_t flat_offset(std::int64_t i) const {
    return static_cast<std::size_t>(i / blocks * channels + i % blocks * kBlock) * element;
  }
  std::size_t flat_bytes(std::int64_t i) const {
    return static_cast<std::size_t>(std::min(kBlock, channels - i % blocks * kBlock)) * element;
  }
};

}  // namespace

Step make_avg_pool(const OpView& op, Scratch&) {
  using operands::AvgPool;
  const Global global(op.in_tensor(AvgPool::x).shape, op.in_tensor(AvgPool::x).dtype);
  const std::byte* from = op.in(AvgPool::x);
  std::byte* to = op.out(AvgPool::y);
  return [=, kernels = &activation_kernels(op.in_tensor(AvgPool::x).dtype)] {
    parallel_for(global.count, [&](std::int64_t i) {
      alignas(64) std::byte lanes[kBlock * sizeof(float)];
      kernels->avg_pool(global.pixels, from + static_cast<std::size_t>(i) * global.plane_bytes, lanes);
      std::copy_n(lanes, global.flat_bytes(i), to + global.flat_offset(i));
    });
  };
}

Step make_avg_pool_grad(const OpView& op, Scratch&) {
  using Grad = operands::AvgPoolGrad;
  const Global global(op.out_tensor(Grad::dx).shape, op.out_tensor(Grad::dx).dtype);
  const std::byte* from = op.in(Grad::dy);
  std::byte* to = op.out(Grad::dx);
  return [=, kernels = &activation_kernels(op.out_tensor(Grad::dx).dtype)] {
    parallel_for(global.count, [&](std::int64_t i) {
      alignas(64) std::byte lanes[kBlock * sizeof(float)] = {};
      std::copy_n(from + global.flat_offset(i), global.flat_bytes(i), lanes);
      kernels->avg_pool_grad(global.pixels, lanes, to + static_cast<std::size_t>(i) * global.plane_bytes);
    });
  };
}

namespace {

using LocalKernel = void (*)(const Window& window, const void* from, void* to);

// `large` and `small` are the sides of the pool, whichever the kernel reads.
Step local_pool_by(LocalKernel kernel, const OpView& op, const graph::Tensor& large,
                   const graph::Shape& small) {
  const int side = op.attr<graph::LocalPoolAttr>().kernel;
  const Planes planes(large.shape, small, large.dtype);
  const Window window = window_of(large.shape, small, {side, side, 0});
  const bool shrinks = op.kind() == graph::OpKind::local_avg_pool;
  const std::size_t from_bytes = shrinks ? planes.in_bytes : planes.out_bytes;
  const std::size_t to_bytes = shrinks ? planes.out_bytes : planes.in_bytes;
  using operands::LocalAvgPool;  // the gradient's are at the same positions
  return [=, from = op.in(LocalAvgPool::x), to = op.out(LocalAvgPool::y)] {
    parallel_for(planes.count, [&](std::int64_t i) {
      const auto plane = static_cast<std::size_t>(i);
      kernel(window, from + plane * from_bytes, to + plane * to_bytes);
    });
  };
}

}  // namespace

Step make_local_avg_pool(const OpView& op, Scratch&) {
  using operands::LocalAvgPool;
  const graph::Tensor& x = op.in_tensor(LocalAvgPool::x);
  return local_pool_by(activation_kernels(x.dtype).local_avg_pool, op, x,
                       op.out_tensor(LocalAvgPool::y).shape);
}

Step make_local_avg_pool_grad(const OpView& op, Scratch&) {
  using Grad = operands::LocalAvgPoolGrad;
  const graph::Tensor& dx = op.out_tensor(Grad::dx);
  return local_pool_by(activation_kernels(dx.dtype).local_avg_pool_grad, op, dx,
                       op.in_tensor(Grad::dy).shape);
}

}  // namespace redline::backend::cpu
