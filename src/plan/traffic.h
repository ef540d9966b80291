// How much work the ops of a plan are: FLOPs, and the least traffic with memory.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace redline::plan {

// Which ops of a plan a backend does in one go. What is made and read within a group need not go through
// memory.
struct Groups {
  // By position of an op, those that are done there, in order: itself alone, with others, or none where
  // others do it. An op is in several lists when it is done again for each reader instead of being stored.
  std::vector<std::vector<int>> ops;
  // In what type matrices and filters are read where activations have it too. Other than fp32: an update
  // writes such a copy beside each of them.
  graph::DType weights = graph::DType::f32;
};

Groups each_alone(const Plan& plan);

struct Work {
  double flops = 0, bytes = 0;
};

// By position of an op, the work of what is done there. Bytes are the least that it has to move, as they are
// stored: each tensor that comes from elsewhere is read once, and each that is wanted elsewhere or after the
// step is written once.
std::vector<Work> work_of(const Plan& plan, const Groups& groups);

// Whether ops of a kind update or average one tensor each: a device may do all of them in one go.
bool updates_one(graph::OpKind kind);
// Whether a group is such ops, of one kind, on several tensors.
bool updates_many(const graph::Graph& graph, const std::vector<int>& ops);
// By position of an op, what is done there as it is told to people: first the op by whose name all of it
// goes, the first convolution or, where there is none, the op at that position; then the others. What is only
// done again is left out.
std::vector<std::vector<int>> named_ops(const graph::Graph& graph, const Groups& groups);
// What else is done with the first of `named` ops, to follow its name: " with norm_grad_stats"; empty when
// nothing is, or the same for other tensors.
std::string others_text(const graph::Graph& graph, const std::vector<int>& named);

}  // namespace redline::plan
