// How tensors lie in a GPU's memory: channels last, and images of three channels as the convolutions that
// read them are fastest with.
#pragma once

#include "graph/graph.h"
#include "plan/plan.h"

namespace redline::backend::cuda {

// As plan::Capabilities::layout, for a GPU whose compute capability begins with `generation`.
plan::Layout layout_of(const graph::Graph& graph, graph::TensorId id, int generation);

}  // namespace redline::backend::cuda
