// Ops that treat a tensor as a flat array, and the image input.
#include "backend/cpu/flat.h"
#include "backend/cpu/kernels/dispatch.h"
#include "backend/cpu/step.h"

namespace redline::backend::cpu {

// Images (u8 NHWC, or fp32 NCHW) to the stem's planes.
Step make_normalize_image(const OpView& op, Scratch&) {
  const graph::Tensor& images = op.in_tensor(0);
  const graph::Tensor& x = op.out_tensor(0);
  const ActivationKernels* kernels = &activation_kernels(x.dtype);
  const std::size_t element = graph::size_of(x.dtype);
  std::byte* to = op.out(0);
  if (images.dtype == graph::DType::f32) {
    const float* from = op.in<float>(0);
    return [=, count = x.shape.elements()] {
      parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
        kernels->from_float(n, from + first, to + static_cast<std::size_t>(first) * element);
      });
    };
  }
  const auto& attr = op.attr<graph::NormalizeAttr>();
  struct {
    float scale[3], bias[3];
  } affine;
  for (int c = 0; c < 3; ++c) {
    affine.scale[c] = 1.0F / (255.0F * attr.std[c]);
    affine.bias[c] = -attr.mean[c] / attr.std[c];
  }
  const auto* from = op.in<std::uint8_t>(0);
  const std::int64_t plane = x.shape.h() * x.shape.w();
  return [=, count = x.shape.n()] {
    parallel_for(count, [&](std::int64_t n) {
      kernels->normalize(plane, plane, from + n * plane * 3, affine.scale, affine.bias,
                         to + static_cast<std::size_t>(n * plane * 3) * element);
    });
  };
}

Step make_relu(const OpView& op, Scratch&) {
  const std::size_t element = graph::size_of(op.in_tensor(0).dtype);
  return [=, kernels = &activation_kernels(op.in_tensor(0).dtype), x = op.in(0), y = op.out(0),
          count = op.out_stored(0)] {
    parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
      const std::size_t at = static_cast<std::size_t>(first) * element;
      kernels->relu(n, x + at, y + at);
    });
  };
}

Step make_relu_grad(const OpView& op, Scratch&) {
  const std::size_t element = graph::size_of(op.in_tensor(0).dtype);
  return [=, kernels = &activation_kernels(op.in_tensor(0).dtype), dy = op.in(0), y = op.in(1),
          dx = op.out(0), count = op.out_stored(0)] {
    parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
      const std::size_t at = static_cast<std::size_t>(first) * element;
      kernels->relu_grad(n, dy + at, y + at, dx + at);
    });
  };
}

Step make_add(const OpView& op, Scratch&) {
  const std::size_t element = graph::size_of(op.in_tensor(0).dtype);
  return [=, kernels = &activation_kernels(op.in_tensor(0).dtype), a = op.in(0), b = op.in(1), y = op.out(0),
          count = op.out_stored(0)] {
    parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
      const std::size_t at = static_cast<std::size_t>(first) * element;
      kernels->add(n, a + at, b + at, y + at);
    });
  };
}

}  // namespace redline::backend::cpu
