// How much memory traffic work costs.
#pragma once

#include "graph/graph.h"

namespace redline::plan {

// Bytes the op has to read and write at least: each tensor once, twice when it is updated in place.
double counted_bytes(const graph::Graph& graph, const graph::Op& op);

}  // namespace redline::plan
