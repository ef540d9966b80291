// 3x3 convolutions fused with the norms around them, on Hopper: each group saves a pass over memory.
#include <fmt/format.h>

#include "backend/cuda/conv_groups.h"
#include "backend/cuda/groups.h"
#include "backend/cuda/kernels/conv3x3.h"

namespace redline::backend::cuda {
namespace {

using operands::EitherConv;
using plan::Group;
using plan::Node;
using Act = operands::AffineAct;
using Grad = operands::ConvGradWeight;

// Whether conv3x3_conv() supports a convolution, forward or back to its input.
bool has_conv3x3(const Node& conv) {
  if (!has_form(conv, 3, 1)) return false;
  const graph::Shape& from = conv.tensor(conv.in(EitherConv::from)).shape;
  const auto to = static_cast<int>(conv.tensor(conv.out(EitherConv::to)).shape.c());
  return !conv3x3::tile_sizes(images_of(from), to).empty();
}

Conv3x3 conv3x3_of(const GroupView& group, const OpView& conv) {
  const graph::Tensor &from = conv.in_tensor(EitherConv::from), &to = conv.out_tensor(EitherConv::to);
  return {.type = type_of(from.dtype),
          .from = images_of(from.shape),
          .to = matrix_of(to).channels,
          .gradient = conv.kind() == OpKind::conv_grad_input,
          .x = conv.in(EitherConv::from),
          .weights = group.weights(conv),
          .out = conv.out(EitherConv::to)};
}

// Candidates for a whole group, the largest tiles first; or for its parts.
Candidates conv3x3_candidates(const GroupView& group, const Conv3x3& work, Shared& shared) {
  std::vector<Candidate> found;
  for (const int size : conv3x3::tile_sizes(work.from, work.to)) {
    found.push_back({fmt::format("conv3x3 tiles of {}", size), [work, size, &shared] {
                       return reducing_step(conv3x3_conv(work, shared.device(), size), shared);
                     }});
  }
  return whole_or_parts(group, std::move(found), shared);
}

}  // namespace

// The weight gradient of a 3x3 convolution that read relu(norm(y)), which is recomputed: conv_grad_weight,
// and its addition to a total.
Group match_weight_gradient3x3(const Node& op) {
  if (!op.is(OpKind::conv_grad_weight) || !has_form(op, 3, 1)) return {};
  const graph::Shape& x = op.tensor(op.in(Grad::x)).shape;
  const Node act = op.maker(Grad::x, OpKind::affine_act);
  if (x.c() != conv3x3::kSlice || op.tensor(op.in(Grad::dy)).shape.c() != conv3x3::kSlice ||
      !conv3x3::DeepCut(images_of(x)).possible() || !is_plain_activation(act))
    return {};
  Group group = match_weight_gradient(op);
  group.recomputes = {act.position};
  return group;
}

Candidates make_weight_gradient3x3(const GroupView& group, Shared& shared) {
  const OpView op = group.op(OpKind::conv_grad_weight), act = group.op(OpKind::affine_act);
  const Conv3x3WeightGrad work{.type = type_of(op.in_tensor(Grad::x).dtype),
                               .images = images_of(op.in_tensor(Grad::x).shape),
                               .x = act.in(Act::y),
                               .affine = act.in<float>(Act::affine),
                               .dy = op.in(Grad::dy),
                               .dw = op.out(Grad::dw),
                               .dw_type = type_of(op.out_tensor(Grad::dw).dtype)};
  return only(own_weight_gradient(group, conv3x3_weight_grad(work, shared.device()), shared));
}

// A norm and ReLU, and the 3x3 convolution that reads them: norm_stats, affine_act, conv. The activation is
// stored for the weight gradient, but not read here.
Group match_activated_conv3x3(const Node& act) {
  const Node conv = activated_conv(act);
  if (!has_conv3x3(conv)) return {};
  return {.ops = {norm_of(act).position, act.position, conv.position}};
}

// The same where the activation is not stored, because the weight gradient recomputes it.
Group match_unstored_conv3x3(const Node& act) {
  Group group = match_activated_conv3x3(act);
  if (!group.ops.empty()) group.unstored = {act.out(Act::z)};
  return group;
}

Candidates make_activated_conv3x3(const GroupView& group, Shared& shared) {
  const OpView act = group.op(OpKind::affine_act), conv = group.op(OpKind::conv);
  Conv3x3 work = conv3x3_of(group, conv);
  work.norm = norm_finalize_of(group.op(OpKind::norm_stats), shared);
  work.x = act.in(Act::y);
  if (group.group().unstored.empty()) work.activated = act.out(Act::z);
  work.sums = conv.out<float>(operands::Conv::sums);
  return conv3x3_candidates(group, work, shared);
}

// The input gradient of a 3x3 convolution and the sums of the norm that it reaches: conv_grad_input,
// norm_grad_stats.
Group match_gradient_sums3x3(const Node& gradient) {
  if (!gradient.is(OpKind::conv_grad_input) || !has_conv3x3(gradient)) return {};
  const Node sums = sums_behind(gradient);
  if (!sums || sums.has_in(operands::NormGradStats::mask)) return {};
  return {.ops = {gradient.position, sums.position}};
}

Candidates make_gradient_sums3x3(const GroupView& group, Shared& shared) {
  Conv3x3 work = conv3x3_of(group, group.op(OpKind::conv_grad_input));
  work.before = gated_norm_of(group.op(OpKind::norm_grad_stats));
  return conv3x3_candidates(group, work, shared);
}

}  // namespace redline::backend::cuda
