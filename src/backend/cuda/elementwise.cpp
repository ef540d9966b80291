// Flat ops, and the image input.
#include "backend/cuda/step.h"

namespace redline::backend::cuda {

Candidates make_normalize_image(const GroupView& group, Shared&) {
  using operands::NormalizeImage;
  const OpView op = group.op();
  const graph::Tensor& x = op.out_tensor(NormalizeImage::x);
  const Type type = type_of(x.dtype);
  const Images shape{x.shape.n(), static_cast<int>(x.shape.h()), static_cast<int>(x.shape.w()),
                     op.out_layout(NormalizeImage::x) == plan::Layout::folded};
  if (op.in_tensor(NormalizeImage::images).dtype == DType::f32)
    return only(pack_image, type, shape, op.in<float>(NormalizeImage::images), op.out(NormalizeImage::x));
  const auto& attr = op.attr<graph::NormalizeAttr>();
  ImageNormalize args{};
  for (int c = 0; c < 3; ++c) {
    args.scale[c] = 1.0F / (255.0F * attr.std[c]);
    args.bias[c] = -attr.mean[c] / attr.std[c];
  }
  return only(normalize_image, type, shape, args, op.in<std::uint8_t>(NormalizeImage::images),
              op.out(NormalizeImage::x));
}

// relu, relu_grad and add; the second input is optional.
Candidates make_flat(const GroupView& group, Shared&) {
  const OpView op = group.op();
  return only(flat, op.kind(), type_of(op.in_tensor(0).dtype), op.out_stored(0), op.in(0), op.in(1),
              op.out(0));
}

Step accumulate_step(const OpView& op) {
  using operands::Accumulate;
  return [type = type_of(op.in_tensor(Accumulate::dw).dtype), n = op.in_stored(Accumulate::total),
          total = op.in<float>(Accumulate::total), dw = op.in(Accumulate::dw),
          scalars = op.in<float>(Accumulate::scalars)](cudaStream_t stream) {
    accumulate(type, n, scalars, total, dw, stream);
  };
}

Candidates make_accumulate(const GroupView& group, Shared&) { return only(accumulate_step(group.op())); }

}  // namespace redline::backend::cuda
