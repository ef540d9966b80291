// How every op is run that is a group by itself; and the table of fused groups (groups.h) as the planner and
// the makers use it.
#include <algorithm>
#include <map>
#include <string_view>

#include "backend/cuda/groups.h"

namespace redline::backend::cuda {
namespace {

struct FusedGroup {
  std::string_view name;
  Matcher* match;
  Maker* make;
  enum Gpus : std::uint8_t { any, hopper } gpus;
};

constexpr FusedGroup kGroups[] = {
#define REDLINE_ROW(name, match, make, gpus) {name, match, make, FusedGroup::gpus},
    REDLINE_CUDA_GROUPS(REDLINE_ROW)
#undef REDLINE_ROW
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

std::vector<plan::GroupRow> group_rows(bool hopper) {
  std::vector<plan::GroupRow> rows;
  for (const FusedGroup& group : kGroups) {
    if (hopper || group.gpus == FusedGroup::any) rows.push_back({std::string(group.name), group.match});
  }
  return rows;
}

Candidates make_candidates(const GroupView& group, Shared& shared) {
  if (const std::string& name = group.group().name; !name.empty()) {
    const auto* const found = std::ranges::find(kGroups, name, &FusedGroup::name);
    check(found != std::end(kGroups), "the cuda backend cannot run a group '{}'", name);
    return found->make(group, shared);
  }
  const auto found = kOps.find(group.op().kind());
  check(found != kOps.end(), "the cuda backend cannot run {} alone", name_of(group.op().kind()));
  return found->second(group, shared);
}

}  // namespace redline::backend::cuda
