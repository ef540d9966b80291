// How a plan's tensors are laid out in memory.
#pragma once

#include "graph/graph.h"
#include "plan/plan.h"

namespace redline::backend::cuda {

// See plan::Capabilities::layout. Channels last; images of three channels in the layout in which the
// convolutions that read them are fastest. `hopper`: see has_hopper_kernels().
plan::Layout layout_of(const graph::Graph& graph, graph::TensorId id, bool hopper);

}  // namespace redline::backend::cuda
