// Names for the positions of an op's inputs and outputs, as op.h lists them:
//   op.inputs[operands::NormGradStats::affine]
#pragma once

#include <cstddef>

#include "base/error.h"
#include "graph/op.h"

namespace redline::graph::operands {

struct NormalizeImage {
  enum In : int { images };
  enum Out : int { x };
};
struct Conv {
  enum In : int { x, w };
  enum Out : int { y, sums };
};
struct BatchNorm {
  enum In : int { x, gamma, beta, mean, var };
  enum Out : int { y, saved };
};
struct Relu {
  enum In : int { x };
  enum Out : int { y };
};
struct Add {
  enum In : int { a, b };
  enum Out : int { y };
};
struct MaxPool {
  enum In : int { x };
  enum Out : int { y, index };
};
struct AvgPool {
  enum In : int { x };
  enum Out : int { y };
};
struct LocalAvgPool {
  enum In : int { x };
  enum Out : int { y };
};
struct Linear {
  enum In : int { x, w, b };
  enum Out : int { y };
};
struct Loss {
  enum In : int { logits, labels, loss_scale, other_labels, label_weights };
  enum Out : int { metrics, gradient };
};
struct NormStats {
  enum In : int { y, gamma, beta, mean, var, sums };
  enum Out : int { affine, saved };
};
struct AffineAct {
  enum In : int { y, affine, shortcut, shortcut_affine };
  enum Out : int { z, mask };
};
struct AffinePool {
  enum In : int { y, affine };
  enum Out : int { z, index, picked };
};
struct ConvGradInput {
  enum In : int { dy, w };
  enum Out : int { dx };
};
struct EitherConv {  // conv and conv_grad_input alike
  enum In : int { from = Conv::x, w = Conv::w };
  enum Out : int { to = Conv::y };
  static_assert(int{ConvGradInput::dy} == from && int{ConvGradInput::w} == w && int{ConvGradInput::dx} == to);
};
struct ConvGradWeight {
  enum In : int { x, dy };
  enum Out : int { dw };
};
struct BatchNormGrad {
  enum In : int { dy, x, gamma, saved };
  enum Out : int { dx, dgamma, dbeta };
};
struct ReluGrad {
  enum In : int { dy, y };
  enum Out : int { dx };
};
struct MaxPoolGrad {
  enum In : int { dy, index };
  enum Out : int { dx };
};
struct AvgPoolGrad {
  enum In : int { dy };
  enum Out : int { dx };
};
struct LocalAvgPoolGrad {
  enum In : int { dy };
  enum Out : int { dx };
};
struct LinearGradInput {
  enum In : int { dy, w };
  enum Out : int { dx };
};
struct LinearGradWeight {
  enum In : int { x, dy };
  enum Out : int { dw, db };
};
struct NormGradStats {
  enum In : int { g, g2, y, affine, mask, saved };
  enum Out : int { dgamma, dbeta, masked };
};
struct NormGradApply {
  enum In : int { g, y, affine, mask, saved, gamma, dgamma, dbeta };
  enum Out : int { dy };
};
struct Accumulate {
  enum In : int { total, dw, scalars };
  enum Out : int { new_total };
};
struct GradientCheck {
  enum In : int { scalars, loss_scale, good_steps, skipped_steps, first_gradient };
  enum Out : int { check, squares, new_loss_scale, new_good_steps, new_skipped_steps };
};
struct Snapshot {
  enum In : int { scalars, first_value };
};
struct Restore {
  enum In : int { check, first_copy };
};
struct Optimizer {  // sgd, lars
  enum In : int { w, dw, v, scalars, check };
  enum Out : int { new_w, new_v };
};
struct Adam {  // adamw, lamb
  enum In : int { w, dw, m, v, scalars, check };
  enum Out : int { new_w, new_m, new_v };
};
struct Ema {
  enum In : int { average, value, scalars, check };
  enum Out : int { new_average };
};

// kNone beyond the end.
inline TensorId in(const Op& op, int position) {
  const auto i = static_cast<std::size_t>(position);
  return i < op.inputs.size() ? op.inputs[i] : kNone;
}
inline TensorId out(const Op& op, int position) {
  const auto i = static_cast<std::size_t>(position);
  return i < op.outputs.size() ? op.outputs[i] : kNone;
}

// The three tensors of a convolution or one of its two gradients. Each op computes one of them, or its
// gradient, from the other two.
struct ConvTensors {
  TensorId x, w, y;  // image, filter and result, or tensors of their shapes
};
inline ConvTensors conv_tensors(const Op& op) {
  switch (op.kind) {
    case OpKind::conv:
      return {op.inputs[Conv::x], op.inputs[Conv::w], op.outputs[Conv::y]};
    case OpKind::conv_grad_input:
      return {op.outputs[ConvGradInput::dx], op.inputs[ConvGradInput::w], op.inputs[ConvGradInput::dy]};
    case OpKind::conv_grad_weight:
      return {op.inputs[ConvGradWeight::x], op.outputs[ConvGradWeight::dw], op.inputs[ConvGradWeight::dy]};
    default:
      throw InternalError("{} '{}' is not a convolution", name_of(op.kind), op.name);
  }
}

}  // namespace redline::graph::operands
