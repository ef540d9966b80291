// Flat ops, and the image input.
#include "backend/cuda/step.h"

namespace redline::backend::cuda {

namespace operands = graph::operands;

Candidates make_normalize_image(const GroupView& group, Shared&) {
  using operands::NormalizeImage;
  return only([op = group.op()]() -> Step {
    const graph::Tensor& x = op.out_tensor(NormalizeImage::x);
    const Type type = type_of(x.dtype);
    const Images shape{x.shape.n(), static_cast<int>(x.shape.h()), static_cast<int>(x.shape.w()),
                       op.out_layout(NormalizeImage::x) == plan::Layout::folded};
    std::byte* to = op.out(NormalizeImage::x);
    if (op.in_tensor(NormalizeImage::images).dtype == graph::DType::f32) {
      return [=, from = op.in<float>(NormalizeImage::images)](cudaStream_t stream) {
        pack_image(type, shape, from, to, stream);
      };
    }
    const auto& attr = op.attr<graph::NormalizeAttr>();
    ImageNormalize args{};
    for (int c = 0; c < 3; ++c) {
      args.scale[c] = 1.0F / (255.0F * attr.std[c]);
      args.bias[c] = -attr.mean[c] / attr.std[c];
    }
    return [=, from = op.in<std::uint8_t>(NormalizeImage::images)](cudaStream_t stream) {
      normalize_image(type, shape, args, from, to, stream);
    };
  });
}

Candidates make_relu(const GroupView& group, Shared&) {
  using operands::Relu;
  return only([op = group.op()]() -> Step {
    return [type = type_of(op.in_tensor(Relu::x).dtype), n = op.out_stored(Relu::y), x = op.in(Relu::x),
            y = op.out(Relu::y)](cudaStream_t stream) { relu(type, n, x, y, stream); };
  });
}

Candidates make_relu_grad(const GroupView& group, Shared&) {
  using operands::ReluGrad;
  return only([op = group.op()]() -> Step {
    return [type = type_of(op.in_tensor(ReluGrad::dy).dtype), n = op.out_stored(ReluGrad::dx),
            dy = op.in(ReluGrad::dy), y = op.in(ReluGrad::y),
            dx = op.out(ReluGrad::dx)](cudaStream_t stream) { relu_grad(type, n, dy, y, dx, stream); };
  });
}

Candidates make_add(const GroupView& group, Shared&) {
  using operands::Add;
  return only([op = group.op()]() -> Step {
    return [type = type_of(op.in_tensor(Add::a).dtype), n = op.out_stored(Add::y), a = op.in(Add::a),
            b = op.in(Add::b), y = op.out(Add::y)](cudaStream_t stream) { add(type, n, a, b, y, stream); };
  });
}

Step accumulate_step(const OpView& op) {
  using operands::Accumulate;
  return [type = type_of(op.in_tensor(Accumulate::dw).dtype), n = op.in_stored(Accumulate::total),
          total = op.in<float>(Accumulate::total), dw = op.in(Accumulate::dw),
          scalars = op.in<float>(Accumulate::scalars)](cudaStream_t stream) {
    accumulate(type, n, scalars, total, dw, stream);
  };
}

Candidates make_accumulate(const GroupView& group, Shared&) {
  return only([op = group.op()] { return accumulate_step(op); });
}

}  // namespace redline::backend::cuda
