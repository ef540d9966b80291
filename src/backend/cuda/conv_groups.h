// What the groups around convolutions share: finding the norms around a convolution, and running a group op
// by op. The groups are in conv1x1_groups.cpp and conv3x3_groups.cpp.
#pragma once

#include <string>
#include <vector>

#include "backend/cuda/step.h"
#include "plan/groups.h"

namespace redline::backend::cuda {

// --- For matchers ---

// Whether a convolution, or one of its gradients, has filters of kernel x kernel, this stride, padding by
// half a filter, one group of channels, and 16-bit activations. False for no node.
bool has_form(const graph::Graph& graph, const graph::Op& conv, int kernel, int stride);
inline bool has_form(const plan::Node& conv, int kernel, int stride) {
  return conv && has_form(conv.flow.graph(), conv.op(), kernel, stride);
}

// The norm_stats whose scale and bias the kernel of this affine_act can compute itself, from the sums of a
// convolution; none if it cannot. A shortcut with a norm of its own is left to the kernels that read both.
plan::Node norm_of(const plan::Node& act);

// Whether an op is relu(norm(y)) and nothing else, with a norm_of().
bool is_plain_activation(const plan::Node& op);
// The convolution with sums that reads such an op; none if there is none.
plan::Node activated_conv(const plan::Node& act);

// The norm_grad_stats that reads a convolution's input gradient, alone or added to another; none if one
// kernel cannot do both. The gradient is stored gated; a norm_grad_apply that reads it may gate it a second
// time, which changes nothing.
plan::Node sums_behind(const plan::Node& gradient);

// --- For makers ---

// The tuning key: the shape of the group's convolution, and what is fused with it.
std::string group_key(const GroupView& group, const OpView& conv);

inline constexpr const char* kApart = "apart ";  // begins the names of candidates that run a group in parts
// Adds candidates that run a group part by part, one for each combination of the parts' candidates. (A part
// has none if cuDNN built no plans because another candidate is certain to be taken.)
void add_in_parts(Candidates& candidates, const std::string& prefix, const std::vector<Candidates>& parts);

// The candidates of a group with one convolution, forward or back to its input: `whole`, and then its parts,
// where everything between them is stored. With small tensors, kernels for the parts may be faster.
Candidates whole_or_parts(const GroupView& group, std::vector<Candidate> whole, Shared& shared);

}  // namespace redline::backend::cuda
