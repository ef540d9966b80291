// 1x1 convolutions fused with the norms around them, on Hopper: each group saves a pass over memory.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "backend/cuda/conv_groups.h"
#include "backend/cuda/groups.h"
#include "backend/cuda/kernels/gemm.h"

namespace redline::backend::cuda {
namespace {

using graph::TensorId;
using operands::Conv;
using operands::ConvGradInput;
using operands::ConvGradWeight;
using operands::EitherConv;
using plan::Group;
using plan::Node;
using Act = operands::AffineAct;
using Apply = operands::NormGradApply;
using Stats = operands::NormGradStats;

// Whether there is a GEMM with this prologue and epilogue for a convolution.
bool has_gemm_of(const Node& conv, Prologue prologue, Epilogue epilogue) {
  return has_form(conv, 1, 1) &&
         has_gemm(prologue, epilogue, conv.tensor(conv.in(EitherConv::from)).shape.c(),
                  conv.tensor(conv.out(EitherConv::to)).shape.c());
}

// Whether expand_grad() supports a convolution.
bool expands(const Node& conv) {
  if (!has_form(conv, 1, 1)) return false;
  const graph::Shape& w = conv.tensor(conv.in(EitherConv::w)).shape;
  return w[0] == ExpandGrad::kTo && w[1] == ExpandGrad::kFrom;
}

// A norm_grad_apply whose gradient needs no gate.
bool is_ungated_apply(const Node& op) {
  return op.is(OpKind::norm_grad_apply) && !op.has_in(Apply::affine) && !op.has_in(Apply::mask);
}

// The other of the two gradients that norm_grad_stats adds.
TensorId other_gradient(const Node& sums, TensorId dx) {
  return sums.in(sums.in(Stats::g) == dx ? Stats::g2 : Stats::g);
}

std::vector<Candidate> gemm_steps(const Gemm& work, Shared& shared) {
  std::vector<Candidate> found;
  for (const GemmCandidate& candidate : gemm_candidates(work, shared.device())) {
    const auto& [form, blocks_each] = candidate;
    found.push_back(
        {fmt::format("gemm {} columns, {} staged, {} blocks", form.columns, form.staging, blocks_each),
         [=, &shared] { return reducing_step(gemm(work, shared.device(), candidate), shared); }});
  }
  return found;
}

// The convolution of a GEMM, forward or back to its input.
Gemm gemm_of(const GroupView& group, const OpView& conv) {
  const graph::Tensor &from = conv.in_tensor(EitherConv::from), &to = conv.out_tensor(EitherConv::to);
  return {.type = type_of(from.dtype),
          .rows = matrix_of(to).rows,
          .k = matrix_of(from).channels,
          .n = matrix_of(to).channels,
          .a = conv.in(EitherConv::from),
          .b = group.weights(conv),
          .out = conv.out(EitherConv::to)};
}

// Forward with the norm's sums.
Gemm forward_of(const GroupView& group, const OpView& conv) {
  Gemm work = gemm_of(group, conv);
  work.sums = conv.out<float>(Conv::sums);
  return work;
}

// Its input gradient, with the sums of the norm that it reaches.
Gemm gradient_of(const GroupView& group, const OpView& conv) {
  const OpView sums = group.op(OpKind::norm_grad_stats);
  const bool dx_first = sums.op().inputs[Stats::g] == conv.op().outputs[EitherConv::to];
  Gemm work = gemm_of(group, conv);
  work.epilogue = sums.in(Stats::mask) != nullptr ? Epilogue::joined : Epilogue::gated;
  if (sums.out(Stats::masked) != nullptr) work.out = sums.out(Stats::masked);
  work.before = gated_norm_of(sums);
  work.other = sums.in(dx_first ? Stats::g2 : Stats::g);
  return work;
}

// One of the two input gradients of sparse_gradient_sums, of stride 1 and of stride 2.
OpView input_gradient(const GroupView& group, int stride) {
  for (const OpView& op : group.ops()) {
    if (op.kind() == OpKind::conv_grad_input && op.attr<graph::ConvAttr>().stride == stride) return op;
  }
  throw InternalError("group '{}' has no convolution of stride {}", group.group().name, stride);
}

}  // namespace

// The gradients of a 1x1 convolution that expands 64 channels to 256, from that of the norm after it:
// norm_grad_apply, conv_grad_input, conv_grad_weight, and norm_grad_stats where the convolution read
// relu(affine(y)), which is recomputed. The gradient between norm and convolution is not stored.
Group match_expand_gradient(const Node& apply) {
  if (!is_ungated_apply(apply)) return {};
  const Node input = apply.reader(Apply::dy, OpKind::conv_grad_input);
  const Node weight = apply.reader(Apply::dy, OpKind::conv_grad_weight);
  if (!weight || apply.readers(Apply::dy) != 2 || !expands(input)) return {};
  Group group{.ops = {apply.position, input.position, weight.position}, .unstored = {apply.out(Apply::dy)}};
  const Node sums = sums_behind(input);
  if (!sums || sums.has_in(Stats::mask)) return group;
  const Node act = weight.maker(ConvGradWeight::x, OpKind::affine_act);
  if (!act || act.in(Act::y) != sums.in(Stats::y) || act.in(Act::affine) != sums.in(Stats::affine) ||
      act.has_in(Act::shortcut) || !act.attr<graph::ActAttr>().relu) {
    return {};
  }
  group.ops.push_back(sums.position);
  group.recomputes = {act.position};
  return group;
}

Candidates make_expand_gradient(const GroupView& group, Shared& shared) {
  const OpView apply = group.op(OpKind::norm_grad_apply), input = group.op(OpKind::conv_grad_input);
  const OpView weight = group.op(OpKind::conv_grad_weight);
  const Matrix y = matrix_of(apply.in_tensor(Apply::y));
  ExpandGrad work{.type = y.type,
                  .rows = y.rows,
                  .norm = norm_grad_apply_of(apply),
                  .x = weight.in(ConvGradWeight::x),
                  .weights = group.weights(input),
                  .dx = input.out(ConvGradInput::dx),
                  .dw = weight.out(ConvGradWeight::dw),
                  .dw_type = type_of(weight.out_tensor(ConvGradWeight::dw).dtype)};
  if (group.has(OpKind::norm_grad_stats)) work.before = gated_norm_of(group.op(OpKind::norm_grad_stats));
  return only(reducing_step(expand_grad(work, shared.device()), shared));
}

// The gradient of a norm, the input gradient of the 1x1 convolution before it, and the sums of the norm
// before that: norm_grad_apply, conv_grad_input, norm_grad_stats.
Group match_norm_gradient(const Node& apply) {
  if (!is_ungated_apply(apply)) return {};
  const Node input = apply.reader(Apply::dy, OpKind::conv_grad_input), sums = sums_behind(input);
  if (!sums || sums.has_in(Stats::mask) || !has_gemm_of(input, Prologue::norm_grad, Epilogue::gated))
    return {};
  return {.ops = {apply.position, input.position, sums.position},
          .in_place = {{apply.in(Apply::g), apply.out(Apply::dy)}}};
}

// All in one kernel; or the norm's gradient alone, and the rest in one kernel or in two.
Candidates make_norm_gradient(const GroupView& group, Shared& shared) {
  const OpView conv = group.op(OpKind::conv_grad_input), norm = group.op(OpKind::norm_grad_apply);
  Gemm work = gradient_of(group, conv);
  const std::vector<Candidate> rest = gemm_steps(work, shared);
  work.prologue = Prologue::norm_grad;
  work.a = norm.in(Apply::y);
  work.a2 = norm.in(Apply::g);
  work.made = norm.out(Apply::dy);
  work.after = norm_grad_apply_of(norm);
  Candidates candidates{group_key(group, conv), gemm_steps(work, shared)};
  const Candidates apply = make_norm_grad_apply(group.part(norm), shared);
  add_in_parts(candidates, kApart, {apply, {"", rest}});
  add_in_parts(candidates, kApart,
               {apply, make_conv_grad_input(group.part(conv), shared),
                make_norm_grad_stats(group.part({OpKind::norm_grad_stats}), shared)});
  return candidates;
}

// gradient_sums if the other branch is a 1x1 convolution of stride 2, whose gradient is zero except at every
// second pixel: conv_grad_input, conv_grad_input, norm_grad_stats. Its memory may hold those pixels only.
Group match_sparse_gradient_sums(const Node& gradient) {
  if (!gradient.is(OpKind::conv_grad_input)) return {};
  const Node sums = sums_behind(gradient);
  if (!sums.has_in(Stats::mask) || !sums.has_out(Stats::masked)) return {};
  const TensorId dx = gradient.out(ConvGradInput::dx), other = other_gradient(sums, dx);
  const Node branch{gradient.flow, gradient.flow.maker(other, OpKind::conv_grad_input)};
  if (!branch || branch.readers(ConvGradInput::dx) != 1) return {};
  const graph::Shape& image = gradient.tensor(dx).shape;
  const bool strided =
      has_form(branch, 1, 2) && image.h() >= 4 && image.w() >= 4;  // as SparseRows wants them
  if (!strided || !has_gemm_of(gradient, Prologue::none, Epilogue::joined_sparse)) return {};
  return {.ops = {gradient.position, branch.position, sums.position}, .unstored = {dx}};
}

// The strided convolution's gradient is stored densely, for the pixels that it read, or in place, with zeros.
Candidates make_sparse_gradient_sums(const GroupView& group, Shared& shared) {
  const OpView conv = input_gradient(group, 1), strided = input_gradient(group, 2);
  const GroupView branch = group.part(strided);
  const Gemm joined = gradient_of(group, conv);
  Gemm sparse = joined;
  sparse.epilogue = Epilogue::joined_sparse;
  const graph::Shape& images = conv.out_tensor(EitherConv::to).shape;
  sparse.sparse = {static_cast<int>(images.h()), static_cast<int>(images.w())};
  Candidates candidates{
      fmt::format("{}c{}", group_key(group, conv), strided.in_tensor(EitherConv::from).shape.c())};
  add_in_parts(candidates, "", {make_dense_grad_input(branch, shared), {"", gemm_steps(sparse, shared)}});
  std::vector<Candidate> first = gemm_steps(joined, shared);  // apart is seldom the fastest
  if (!first.empty()) first.resize(1);
  add_in_parts(candidates, kApart, {make_conv_grad_input(branch, shared), {"", std::move(first)}});
  return candidates;
}

// gradient_sums if the block's shortcut has a norm too, whose sums are of the same total: conv_grad_input,
// norm_grad_stats, norm_grad_stats.
Group match_two_norm_sums(const Node& gradient) {
  Group group = match_gradient_sums(gradient);
  if (group.unstored.empty() || !has_gemm_of(gradient, Prologue::none, Epilogue::joined_two_norms)) return {};
  const Node shortcut = sums_behind(gradient).reader(Stats::masked, OpKind::norm_grad_stats);
  if (!shortcut || shortcut.has_in(Stats::g2) || shortcut.has_in(Stats::affine) ||
      shortcut.has_in(Stats::mask) || shortcut.has_out(Stats::masked))
    return {};
  group.ops.push_back(shortcut.position);
  return group;
}

// The shortcut's sums in a kernel of their own, or in the same one.
Candidates make_two_norm_sums(const GroupView& group, Shared& shared) {
  const OpView conv = group.op(OpKind::conv_grad_input), shortcut = group.ops().back();
  Gemm work = gradient_of(group, conv);
  Candidates candidates{group_key(group, conv)};
  add_in_parts(candidates, kApart,
               {{"", gemm_steps(work, shared)}, make_norm_grad_stats(group.part(shortcut), shared)});
  work.epilogue = Epilogue::joined_two_norms;
  work.shortcut = gated_norm_of(shortcut);
  std::ranges::move(gemm_steps(work, shared), std::back_inserter(candidates.list));
  return candidates;
}

// The input gradient of a 1x1 convolution and the sums of the norm that it reaches: conv_grad_input,
// norm_grad_stats. If another branch's gradient is added, only the total is stored.
Group match_gradient_sums(const Node& gradient) {
  if (!gradient.is(OpKind::conv_grad_input)) return {};
  const Node sums = sums_behind(gradient);
  const Epilogue epilogue = sums.has_in(Stats::mask) ? Epilogue::joined : Epilogue::gated;
  if (!sums || !has_gemm_of(gradient, Prologue::none, epilogue)) return {};
  Group group{.ops = {gradient.position, sums.position}};
  if (const TensorId masked = sums.out(Stats::masked); masked != graph::kNone) {
    const TensorId dx = gradient.out(ConvGradInput::dx);
    group.unstored = {dx};
    group.in_place = {{other_gradient(sums, dx), masked}};
  }
  return group;
}

Candidates make_gradient_sums(const GroupView& group, Shared& shared) {
  return whole_or_parts(group, gemm_steps(gradient_of(group, group.op(OpKind::conv_grad_input)), shared),
                        shared);
}

// A norm and ReLU, and the 1x1 convolution that reads them and expands 64 channels to 256: norm_stats,
// affine_act, conv. The activation is not stored.
Group match_activated_expand(const Node& act) {
  const Node conv = activated_conv(act);
  if (!expands(conv)) return {};
  return {.ops = {norm_of(act).position, act.position, conv.position}, .unstored = {act.out(Act::z)}};
}

// The same for other 1x1 convolutions. The activation is stored for the weight gradient, but not read here.
// With more channels, applying the norm in every block would take longer than the product.
Group match_activated_conv(const Node& act) {
  constexpr std::int64_t kMostChannels = 128;
  const Node conv = activated_conv(act);
  if (!has_gemm_of(conv, Prologue::activate, Epilogue::sums) ||
      conv.tensor(conv.in(Conv::x)).shape.c() > kMostChannels)
    return {};
  return {.ops = {norm_of(act).position, act.position, conv.position}};
}

Candidates make_activated_conv(const GroupView& group, Shared& shared) {
  const OpView norm = group.op(OpKind::norm_stats);
  Gemm work = forward_of(group, group.op(OpKind::conv));
  work.prologue = Prologue::activate;
  work.a = norm.in(operands::NormStats::y);
  work.finalizes = true;
  work.norm = norm_finalize_of(norm, shared);
  if (group.group().unstored.empty()) work.made = group.op(OpKind::affine_act).out(Act::z);
  return whole_or_parts(group, gemm_steps(work, shared), shared);
}

// The end of a block and the 1x1 convolution that the next one begins with: affine_act with a shortcut, conv,
// and the norm_stats before them.
Group match_join(const Node& act) {
  if (!act.is(OpKind::affine_act) || !act.has_in(Act::shortcut) || !act.attr<graph::ActAttr>().relu)
    return {};
  const TensorId z = act.out(Act::z);
  for (const int position : act.flow.readers(z)) {
    const Node conv{act.flow, position};
    if (!conv.is(OpKind::conv) || !conv.has_out(Conv::sums) ||
        !has_gemm_of(conv, Prologue::join, Epilogue::sums))
      continue;
    Group group{.ops = {act.position, position}, .in_place = {{act.in(Act::shortcut), z}}};
    if (const Node norm = norm_of(act)) group.ops.push_back(norm.position);
    return group;
  }
  return {};
}

Candidates make_join(const GroupView& group, Shared& shared) {
  const OpView act = group.op(OpKind::affine_act);
  Gemm work = forward_of(group, group.op(OpKind::conv));
  work.prologue = Prologue::join;
  work.a = act.in(Act::y);
  work.a2 = act.in(Act::shortcut);
  work.made = act.out(Act::z);
  work.affine = act.in<float>(Act::affine);
  work.a2_affine = act.in<float>(Act::shortcut_affine);
  work.made_mask = act.out<std::uint8_t>(Act::mask);
  if (group.has(OpKind::norm_stats)) {
    work.finalizes = true;
    work.norm = norm_finalize_of(group.op(OpKind::norm_stats), shared);
  }
  return whole_or_parts(group, gemm_steps(work, shared), shared);
}

std::vector<Candidate> pointwise_convs(const GroupView& group, Shared& shared) {
  const OpView op = group.op();
  if (!has_form(group.plan().graph(), op.op(), 1, 1) || op.in_layout(Conv::x) != plan::Layout::channels_last)
    return {};
  return gemm_steps(forward_of(group, op), shared);
}

}  // namespace redline::backend::cuda
