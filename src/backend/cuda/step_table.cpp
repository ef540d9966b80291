// The table of makers: of every op, and of every group, by the name of its row in group_table.cpp.
#include <map>
#include <string_view>

#include "backend/cuda/group_table.h"
#include "backend/cuda/step.h"

namespace redline::backend::cuda {
namespace {

const std::map<std::string_view, Maker*> kGroups = {
    {groups::kExpandGradient, make_expand_gradient},
    {groups::kNormGradient, make_norm_gradient},
    {groups::kSparseGradientSums, make_sparse_gradient_sums},
    {groups::kTwoNormSums, make_two_norm_sums},
    {groups::kGradientSums, make_gradient_sums},
    {groups::kActivatedExpand, make_activated_conv},
    {groups::kActivatedConv, make_activated_conv},
    {groups::kJoin, make_join},
    {groups::kActivatedConv3x3, make_conv3x3_group},
    {groups::kGradientSums3x3, make_conv3x3_group},
    {groups::kWeightGradient3x3, make_weight_gradient3x3},
    {groups::kNormAct, make_affine_act},
    {groups::kPoolGradient, make_pool_gradient},
    {groups::kWeightGradient, make_weight_gradient},
    {groups::kUpdate, make_update},
};

// An all_reduce does nothing in a process that is alone; with other ranks, Reductions replaces this step.
Candidates make_nothing(const GroupView&, Shared&) {
  return only([](cudaStream_t) {});
}

const std::map<OpKind, Maker*> kOps = {
    {OpKind::normalize_image, make_normalize_image},
    {OpKind::conv, make_conv},
    {OpKind::batch_norm, make_batch_norm},
    {OpKind::relu, make_flat},
    {OpKind::add, make_flat},
    {OpKind::max_pool, make_max_pool},
    {OpKind::avg_pool, make_avg_pool},
    {OpKind::local_avg_pool, make_local_avg_pool},
    {OpKind::linear, make_linear},
    {OpKind::softmax_cross_entropy, make_softmax_cross_entropy},
    {OpKind::norm_stats, make_norm_stats},
    {OpKind::affine_act, make_affine_act},
    {OpKind::affine_pool, make_max_pool},
    {OpKind::conv_grad_input, make_conv_grad_input},
    {OpKind::batch_norm_grad, make_batch_norm_grad},
    {OpKind::relu_grad, make_flat},
    {OpKind::max_pool_grad, make_max_pool_grad},
    {OpKind::avg_pool_grad, make_avg_pool_grad},
    {OpKind::local_avg_pool_grad, make_avg_pool_grad},
    {OpKind::linear_grad_input, make_linear_grad_input},
    {OpKind::linear_grad_weight, make_linear_grad_weight},
    {OpKind::norm_grad_stats, make_norm_grad_stats},
    {OpKind::norm_grad_apply, make_norm_grad_apply},
    {OpKind::snapshot, make_snapshot},
    {OpKind::accumulate, make_accumulate},
    {OpKind::all_reduce, make_nothing},
    {OpKind::gradient_check, make_gradient_check},
    {OpKind::restore, make_restore},
};

}  // namespace

Candidates make_candidates(const GroupView& group, Shared& shared) {
  if (!group.group().name.empty()) {
    const auto found = kGroups.find(group.group().name);
    check(found != kGroups.end(), "the cuda backend cannot run a group '{}'", group.group().name);
    return found->second(group, shared);
  }
  const auto found = kOps.find(group.op().kind());
  check(found != kOps.end(), "the cuda backend cannot run {} alone", name_of(group.op().kind()));
  return found->second(group, shared);
}

}  // namespace redline::backend::cuda
