// Overlap: nothing but the update waits for a weight gradient, so a device can compute it beside the chain of
// gradients that everything else waits for.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "plan/plan.h"

namespace redline::plan {

// The same graph with each convolution's weight gradient behind the norm's sums that its input gradient
// feeds: a backend may then do the two that are now neighbours at once.
graph::Graph sums_before_weight_gradients(const graph::Graph& graph);

// The same graph with each norm's gradient applied right in front of the first op that reads it, which a
// backend may then do together with it.
graph::Graph norm_gradients_before_readers(const graph::Graph& graph);

// The weight gradients of a graph, of which `most` may be under way at a time.
std::vector<Beside> find_beside(const graph::Graph& graph, int update_begin, int most);

}  // namespace redline::plan
