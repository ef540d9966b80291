// The fused groups: sets of ops that one kernel runs as one (src/README.md: "Groups, candidates and tiles").
// The table below is the only list of them.
#pragma once

#include <vector>

#include "backend/cuda/step.h"
#include "plan/groups.h"

namespace redline::backend::cuda {

// The planner tries the rows in this order. A row has
//   the group's name, which its plan::Group has too;
//   its matcher, which says what the kernel covers: it finds the group in a graph, see plan::GroupRow;
//   its maker, which says how the kernel is launched. It is next to the matcher, in the file named above;
//   the GPUs that have the kernel: those that run hopper.cuh, or any.
// clang-format off
#define REDLINE_CUDA_GROUPS(ROW)                                                                  \
  /* conv1x1_groups.cpp */                                                                        \
  ROW("expand_gradient",      match_expand_gradient,      make_expand_gradient,      hopper)      \
  ROW("norm_gradient",        match_norm_gradient,        make_norm_gradient,        hopper)      \
  ROW("sparse_gradient_sums", match_sparse_gradient_sums, make_sparse_gradient_sums, hopper)      \
  ROW("two_norm_sums",        match_two_norm_sums,        make_two_norm_sums,        hopper)      \
  ROW("gradient_sums",        match_gradient_sums,        make_gradient_sums,        hopper)      \
  ROW("activated_expand",     match_activated_expand,     make_activated_conv,       hopper)      \
  ROW("activated_conv",       match_activated_conv,       make_activated_conv,       hopper)      \
  ROW("join",                 match_join,                 make_join,                 hopper)      \
  /* conv3x3_groups.cpp */                                                                        \
  ROW("weight_gradient3x3",   match_weight_gradient3x3,   make_weight_gradient3x3,   hopper)      \
  ROW("unstored_conv3x3",     match_unstored_conv3x3,     make_activated_conv3x3,    hopper)      \
  ROW("activated_conv3x3",    match_activated_conv3x3,    make_activated_conv3x3,    hopper)      \
  ROW("gradient_sums3x3",     match_gradient_sums3x3,     make_gradient_sums3x3,     hopper)      \
  /* norm.cpp, pool.cpp, conv.cpp, update.cpp */                                                  \
  ROW("norm_act",             match_norm_act,             make_affine_act,           any)         \
  ROW("pool_gradient",        match_pool_gradient,        make_pool_gradient,        any)         \
  ROW("weight_gradient",      match_weight_gradient,      make_weight_gradient,      any)         \
  ROW("update",               match_update,               make_update,               any)
// clang-format on

using Matcher = plan::Group(const plan::Node& op);

#define REDLINE_DECLARE(name, match, make, gpus) \
  Matcher match;                                 \
  Maker make;
REDLINE_CUDA_GROUPS(REDLINE_DECLARE)
#undef REDLINE_DECLARE

// The rows for the planner. `hopper`: whether the kernels of hopper.cuh run; see has_hopper_kernels().
std::vector<plan::GroupRow> group_rows(bool hopper);

}  // namespace redline::backend::cuda
