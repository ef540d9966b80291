// The work of a plan's ops: FLOPs, and the least memory traffic.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace redline::plan {

struct Work {
  double flops = 0, bytes = 0;
};

// The work of each group: of the plan's own, or of any other grouping of its ops. Bytes are a lower bound, in
// the types that tensors are stored in: every tensor from another group is read once, and every tensor that
// another group or the host needs is written once.
std::vector<Work> work_of(const Plan& plan, const std::vector<Group>& groups);

// Whether ops of a kind update or average one tensor each, so that a device may run all of them as one unit.
bool updates_one(graph::OpKind kind);
// Whether a group is several such ops of one kind.
bool updates_many(const graph::Graph& graph, const Group& group);
// The other ops of a group, printed after its name: " with norm_grad_stats". Empty for a single op and for
// updates of many tensors. Recomputed ops are not listed.
std::string others_text(const graph::Graph& graph, const Group& group);

}  // namespace redline::plan
