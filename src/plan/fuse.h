// The fusion pass: rewrites a forward graph around the pending affine.
#pragma once

#include "graph/graph.h"
#include "plan/plan.h"

namespace redline::plan {

struct Fused {
  graph::Graph graph;
  int model_ops = 0;  // how many ops of the model went into fused ones
};

// A batch norm becomes norm_stats, which leaves a (scale, bias) pending on the raw convolution output; the
// ReLU, residual join or max pool that consumes it applies the affine as it reads. Other consumers get a
// materialised copy. Tensor ids stay valid; tensors that are no longer produced are unused. Run before
// autodiff, which knows the fused forms. If the backend lacks them, the graph is returned unchanged.
Fused fuse(const graph::Graph& graph, const Capabilities& backend, graph::DType dtype);

}  // namespace redline::plan
