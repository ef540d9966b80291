// Automatic differentiation as a graph rewrite: appends the backward ops of every op between the loss and the
// parameters, and names the gradient of each parameter.
#pragma once

#include <string_view>
#include <unordered_map>

#include "graph/graph.h"

namespace redline::graph {

inline constexpr std::string_view kGradientSuffix = ".grad";
// parameter -> its gradient, a tensor of kind `gradient` named "<parameter>.grad".
using Gradients = std::unordered_map<TensorId, TensorId>;

// The graph must have one softmax_cross_entropy with a gradient output. Frozen parameters have no gradient,
// and nothing is computed in front of the first trained parameter. Handles every forward op, fused or not: if
// affine_act made a tensor with two consumers, norm_grad_stats reads both gradients and adds them.
// Gradients of matrices and filters are of type `weights`, all other parameters' fp32.
Gradients differentiate(Graph& graph, DType weights = DType::f32);

}  // namespace redline::graph
