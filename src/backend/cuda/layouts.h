// How tensors lie in a GPU's memory: channels last, and images of three channels as the convolutions that
// read them are fastest with.
#pragma once

#include "graph/graph.h"
#include "plan/plan.h"

namespace redline::backend::cuda {

// As plan::Capabilities::layout, `hopper` as for group_rows.
plan::Layout layout_of(const graph::Graph& graph, graph::TensorId id, bool hopper);

}  // namespace redline::backend::cuda
