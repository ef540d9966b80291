// What the planner asks: which ops of a graph can run as one group, and how tensors are laid out in memory.
// Each row's name also has an entry in step_table.cpp, with the function that makes the group's candidates.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "plan/groups.h"
#include "plan/plan.h"

namespace redline::backend::cuda {

// Names of rows, as Plan::groups has them.
namespace groups {
inline constexpr const char* kExpandGradient = "expand_gradient";
inline constexpr const char* kNormGradient = "norm_gradient";
inline constexpr const char* kGradientSums = "gradient_sums";
inline constexpr const char* kSparseGradientSums = "sparse_gradient_sums";
inline constexpr const char* kTwoNormSums = "two_norm_sums";
inline constexpr const char* kActivatedExpand = "activated_expand";
inline constexpr const char* kActivatedConv = "activated_conv";
inline constexpr const char* kJoin = "join";
inline constexpr const char* kActivatedConv3x3 = "activated_conv3x3";
inline constexpr const char* kGradientSums3x3 = "gradient_sums3x3";
inline constexpr const char* kWeightGradient3x3 = "weight_gradient3x3";
inline constexpr const char* kNormAct = "norm_act";
inline constexpr const char* kPoolGradient = "pool_gradient";
inline constexpr const char* kWeightGradient = "weight_gradient";
inline constexpr const char* kUpdate = "update";
}  // namespace groups

// `hopper`: whether kernels written for Hopper's TMA and wgmma can run; see has_hopper_kernels().
std::vector<plan::GroupRow> group_rows(bool hopper);

// See plan::Capabilities::layout. Channels last; images of three channels in the layout in which the
// convolutions that read them are fastest. (layouts.cpp)
plan::Layout layout_of(const graph::Graph& graph, graph::TensorId id, bool hopper);

}  // namespace redline::backend::cuda
