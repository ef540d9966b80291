// The reference backend: every op as plain loops on one thread, every tensor in plain order. Other backends
// are tested against it, so it is written to be correct and readable first, and only then fast.
//
// Tensors are stored in their dtype; values are converted to fp32 on load, sums are kept in double, and
// stores round to nearest even. Arena memory is filled with NaN before its tensor is first written and again
// after its last use, so that a plan with wrong lifetimes gives NaN instead of a plausible number.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace redline::backend {

std::unique_ptr<Backend> make_reference_backend(const DeviceOptions& options = {});

}  // namespace redline::backend
