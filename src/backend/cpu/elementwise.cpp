// Ops that treat a tensor as a flat array, and the image input.
#include "backend/cpu/flat.h"
#include "backend/cpu/kernels/dispatch.h"
#include "backend/cpu/step.h"

namespace redline::backend::cpu {

// Images (u8 NHWC, or fp32 NCHW) to the stem's planes.
Step make_normalize_image(const OpView& op, Scratch&) {
  using operands::NormalizeImage;
  const graph::Tensor& images = op.in_tensor(NormalizeImage::images);
  const graph::Tensor& x = op.out_tensor(NormalizeImage::x);
  const ActivationKernels* kernels = &activation_kernels(x.dtype);
  const std::size_t element = graph::size_of(x.dtype);
  std::byte* to = op.out(NormalizeImage::x);
  if (images.dtype == graph::DType::f32) {
    const float* from = op.in<float>(NormalizeImage::images);
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
  const auto* from = op.in<std::uint8_t>(NormalizeImage::images);
  const std::int64_t plane = x.shape.h() * x.shape.w();
  return [=, count = x.shape.n()] {
    parallel_for(count, [&](std::int64_t n) {
      kernels->normalize(plane, plane, from + n * plane * 3, affine.scale, affine.bias,
                         to + static_cast<std::size_t>(n * plane * 3) * element);
    });
  };
}

Step make_relu(const OpView& op, Scratch&) {
  using operands::Relu;
  const std::size_t element = graph::size_of(op.in_tensor(Relu::x).dtype);
  return [=, kernels = &activation_kernels(op.in_tensor(Relu::x).dtype), x = op.in(Relu::x),
          y = op.out(Relu::y), count = op.out_stored(Relu::y)] {
    parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
      const std::size_t at = static_cast<std::size_t>(first) * element;
      kernels->relu(n, x + at, y + at);
    });
  };
}

Step make_relu_grad(const OpView& op, Scratch&) {
  using Grad = operands::ReluGrad;
  const std::size_t element = graph::size_of(op.in_tensor(Grad::dy).dtype);
  return [=, kernels = &activation_kernels(op.in_tensor(Grad::dy).dtype), dy = op.in(Grad::dy),
          y = op.in(Grad::y), dx = op.out(Grad::dx), count = op.out_stored(Grad::dx)] {
    parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
      const std::size_t at = static_cast<std::size_t>(first) * element;
      kernels->relu_grad(n, dy + at, y + at, dx + at);
    });
  };
}

Step make_add(const OpView& op, Scratch&) {
  using operands::Add;
  const std::size_t element = graph::size_of(op.in_tensor(Add::a).dtype);
  return [=, kernels = &activation_kernels(op.in_tensor(Add::a).dtype), a = op.in(Add::a), b = op.in(Add::b),
          y = op.out(Add::y), count = op.out_stored(Add::y)] {
    parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
      const std::size_t at = static_cast<std::size_t>(first) * element;
      kernels->add(n, a + at, b + at, y + at);
    });
  };
}

}  // namespace redline::backend::cpu
