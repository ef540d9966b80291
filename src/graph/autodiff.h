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

// The graph must hold one softmax_cross_entropy with a gradient output. Frozen parameters have no gradient,
// and nothing is computed for what comes before every other parameter. Knows every forward op, fused or not:
// where a tensor with two consumers was made by affine_act, the sum of its two gradients is left to
// norm_grad_stats, which reads both.
// Gradients of matrices and filters are of type `weights`, all other parameters' fp32.
Gradients differentiate(Graph& graph, DType weights = DType::f32);

}  // namespace redline::graph
