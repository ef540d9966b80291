// Trades time for memory: activations that a training step computes twice instead of keeping them for its
// backward pass.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "plan/groups.h"

namespace redline::plan {

enum class Recompute : std::uint8_t {
  none,
  activations,  // norm and ReLU within blocks, which are cheap: one pass over a tensor that is kept anyway
  blocks,       // and the output of every second block, from its last convolution and its shortcut
};

// Returns a graph in which the backward pass recomputes such activations right before it first reads them.
// `groups`, of the original graph, say what the backward pass reads from memory: activations that a kernel
// recomputes anyway are not touched. The new ops are exact copies, so the results are the same.
graph::Graph recomputed(const graph::Graph& graph, const std::vector<Group>& groups, Recompute what);

}  // namespace redline::plan
