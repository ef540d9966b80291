// Whether a backend computed what the reference did, as far as its number format allows.
#pragma once

#include <set>

#include "backend/backend.h"

namespace redline::cases {

// Expects two executables of the same graph, run from the same inputs, to agree in every tensor that its ops
// touch, but for `ignored`: in those that they write, and in the inputs, which shows that they were left
// alone. `dtype` is that of activations. `rounded_twice`: entry by entry from a stored sum, whose last bit
// may differ already.
void expect_agreement(const backend::Executable& actual, const backend::Executable& expected,
                      graph::DType dtype, const std::set<graph::TensorId>& ignored = {},
                      const std::set<graph::TensorId>& rounded_twice = {});

}  // namespace redline::cases
