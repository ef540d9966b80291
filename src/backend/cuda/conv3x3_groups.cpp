// 3x3 convolutions that do the work of the norms around them, on Hopper.
#include <fmt/format.h>

#include "backend/cuda/kernels/conv3x3_tiles.h"
#include "backend/cuda/step.h"

namespace redline::backend::cuda {
namespace {

namespace operands = graph::operands;
using graph::OpKind;
using operands::EitherConv;

Conv3x3 conv3x3_of(const GroupView& group, const OpView& conv) {
  const graph::Tensor &from = conv.in_tensor(EitherConv::from), &to = conv.out_tensor(EitherConv::to);
  Conv3x3 work;
  work.type = type_of(from.dtype);
  work.images = static_cast<int>(to.shape.n());
  work.h = static_cast<int>(to.shape.h());
  work.w = static_cast<int>(to.shape.w());
  work.from = static_cast<int>(from.shape.c());
  work.to = static_cast<int>(to.shape.c());
  work.gradient = conv.kind() == OpKind::conv_grad_input;
  work.x = conv.in(EitherConv::from);
  work.weights = group.weights(conv);
  work.out = conv.out(EitherConv::to);
  return work;
}

Conv3x3 activated_conv_of(const GroupView& group, const Shared& shared) {
  const OpView act = group.op(OpKind::affine_act), conv = group.op(OpKind::conv);
  Conv3x3 work = conv3x3_of(group, conv);
  work.norm = norm_finalize_of(group.op(OpKind::norm_stats), shared);
  work.x = act.in(operands::AffineAct::y);
  if (group.group().unstored.empty()) work.activated = act.out(operands::AffineAct::z);
  work.sums = conv.out<float>(operands::Conv::sums);
  return work;
}

Conv3x3 gated_gradient_of(const GroupView& group) {
  using Stats = operands::NormGradStats;
  const OpView sums = group.op(OpKind::norm_grad_stats);
  Conv3x3 work = conv3x3_of(group, group.op(OpKind::conv_grad_input));
  work.y = sums.in(Stats::y);
  work.affine = sums.in<float>(Stats::affine);
  work.saved = sums.in<float>(Stats::saved);
  work.dgamma = sums.out<float>(Stats::dgamma);
  work.dbeta = sums.out<float>(Stats::dbeta);
  return work;
}

}  // namespace

std::vector<Candidate> conv3x3_candidates(const GroupView& group, Shared& shared) {
  const Conv3x3 work = group.has(OpKind::conv) ? activated_conv_of(group, shared) : gated_gradient_of(group);
  std::vector<Candidate> found;
  for (const int size : conv3x3::tile_sizes(work.h, work.w, work.from, work.to)) {
    found.push_back({fmt::format("conv3x3 tiles of {}", size), [work, size, &shared] {
                       return reducing_step(conv3x3_conv(work, shared.device(), size), shared);
                     }});
  }
  return found;
}

}  // namespace redline::backend::cuda
