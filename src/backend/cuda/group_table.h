// What the planner is told: which ops of a graph one kernel does together, and how tensors lie in memory.
// Every name of a row has an entry in the table of steps (step_table.cpp), which says how it is launched.
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

// `hopper`: whether kernels that are written for Hopper's TMA and wgmma can run, as has_hopper_kernels()
// says.
std::vector<plan::GroupRow> group_rows(bool hopper);

// As plan::Capabilities::layout: channels last, and images of three channels as the convolutions that read
// them are fastest with. (layouts.cpp)
plan::Layout layout_of(const graph::Graph& graph, graph::TensorId id, bool hopper);

}  // namespace redline::backend::cuda
