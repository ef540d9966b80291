// How much work the ops of a plan are: FLOPs, and the least traffic with memory.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace redline::plan {

struct Work {
  double flops = 0, bytes = 0;
};

// The work of each of a plan's groups, or of others of its ops. Bytes are the least that a group has to move,
// as they are stored: each tensor that comes from elsewhere is read once, and each that is wanted elsewhere
// or after the step is written once.
std::vector<Work> work_of(const Plan& plan, const std::vector<Group>& groups);

// Whether ops of a kind update or average one tensor each: a device may do all of them in one go.
bool updates_one(graph::OpKind kind);
// Whether a group is such ops, of one kind, on several tensors.
bool updates_many(const graph::Graph& graph, const Group& group);
// What a group does besides the op that it is named after, to follow that name: " with norm_grad_stats";
// empty when it does nothing else, or the same for other tensors. What it recomputes is left out.
std::string others_text(const graph::Graph& graph, const Group& group);

}  // namespace redline::plan
