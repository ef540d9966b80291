// The table of op cases: every op of graph/op.h in a spread of odd shapes and attributes. A new op, or a new
// form of one, is a line here; agreement, gradients and speed follow.
#pragma once

#include <vector>

#include "bench/op_cases.h"

namespace redline::cases {

// All cases with activations of `dtype`.
std::vector<bench::OpCase> op_cases(graph::DType dtype);
// Ops of which a GPU's blocks each do many tiles, in shapes large enough that every one comes around its
// ring.
std::vector<bench::OpCase> large_op_cases(graph::DType dtype);

}  // namespace redline::cases
