// Weight gradients of convolutions with few pixels per image. oneDNN sums one image after the other, which is
// slow when an image has only a handful of pixels; unfolding lays the windows of all images side by side, so
// that the whole batch is one long matrix product.
#pragma once

#include "backend/cpu/step.h"

namespace redline::backend::cpu {

// Whether unfolding is faster; decided by the shapes only, so that results never depend on timing.
bool should_unfold(const graph::Shape& x, const graph::Shape& w, const graph::Shape& y);

// The step of a conv_grad_weight for which should_unfold holds.
Step make_unfolded_grad_weight(const OpView& op, Scratch& scratch);

}  // namespace redline::backend::cpu
