#include "backend/cuda/group_table.h"

#include "backend/cuda/kernels/conv3x3.h"
#include "backend/cuda/kernels/gemm.h"
#include "backend/cuda/kernels/kernels.h"
#include "graph/operands.h"
#include "plan/traffic.h"

namespace redline::backend::cuda {
namespace {

// They hide the kernels' arguments of the same names.
using graph::kNone;
using graph::Op;
using graph::OpKind;
using graph::TensorId;
using graph::operands::AffineAct;
using graph::operands::Conv;
using graph::operands::ConvGradInput;
using graph::operands::ConvGradWeight;
using graph::operands::EitherConv;
using graph::operands::MaxPoolGrad;
using graph::operands::NormGradApply;
using graph::operands::NormGradStats;
using graph::operands::NormStats;
using plan::Group;
using plan::Node;

// The most channels whose norm a 1x1 convolution applies itself.
constexpr std::int64_t kMostActivated = 128;

std::int64_t channels_of(const Node& op, TensorId id) { return op.tensor(id).shape.c(); }
bool is_narrow(const Node& op, TensorId id) { return graph::size_of(op.tensor(id).dtype) == 2; }

// Whether a convolution, or one of its gradients, has this form and no groups. `filter`: its weights.
bool has_form(const Node& conv, TensorId filter, int kernel, int stride) {
  const auto& attr = conv.attr<graph::ConvAttr>();
  return conv.tensor(filter).shape[2] == kernel && attr.stride == stride && attr.pad == kernel / 2 &&
         attr.groups == 1;
}

// 1x1, stride 1, of 16-bit activations.
bool is_pointwise(const Node& conv) {
  return conv && has_form(conv, conv.in(EitherConv::w), 1, 1) && is_narrow(conv, conv.in(EitherConv::from));
}

bool expands(const Node& conv) {
  if (!is_pointwise(conv)) return false;
  const graph::Shape& w = conv.tensor(conv.in(EitherConv::w)).shape;
  return w[0] == ExpandGrad::kTo && w[1] == ExpandGrad::kFrom;
}

// Whether there is a GEMM with this prologue and epilogue for a 1x1 convolution.
bool has_gemm_of(const Node& conv, Prologue prologue, Epilogue epilogue) {
  return is_pointwise(conv) && has_gemm(prologue, epilogue, channels_of(conv, conv.in(EitherConv::from)),
                                        channels_of(conv, conv.out(EitherConv::to)));
}

// 3x3, stride 1, of image sizes and channels that our own kernel supports.
bool is_conv3x3(const Node& conv) {
  if (!conv || !has_form(conv, conv.in(EitherConv::w), 3, 1) || !is_narrow(conv, conv.in(EitherConv::from)))
    return false;
  const graph::Shape& from = conv.tensor(conv.in(EitherConv::from)).shape;
  const auto to = static_cast<int>(channels_of(conv, conv.out(EitherConv::to)));
  return !conv3x3::tile_sizes(images_of(from), to).empty();
}

// A norm_grad_apply whose gradient needs no gate.
bool is_ungated_apply(const Node& op) {
  return op.is(OpKind::norm_grad_apply) && !op.has_in(NormGradApply::affine) &&
         !op.has_in(NormGradApply::mask);
}

// The norm_grad_stats that reads a convolution's input gradient, alone or added to another; none if one
// kernel cannot do both. The gradient is stored gated; a norm_grad_apply that reads it may gate it a second
// time, which changes nothing.
Node sums_behind(const Node& gradient) {
  const Node none{gradient.flow};
  const Node sums = gradient.reader(ConvGradInput::dx, OpKind::norm_grad_stats);
  const bool has_mask = sums.has_in(NormGradStats::mask);
  if (!sums || has_mask != sums.has_in(NormGradStats::g2) || has_mask == sums.has_in(NormGradStats::affine))
    return none;
  for (const int position : gradient.flow.readers(gradient.out(ConvGradInput::dx))) {
    const Node reader{gradient.flow, position};
    const bool gates_again = reader.is(OpKind::norm_grad_apply) &&
                             reader.in(NormGradApply::affine) == sums.in(NormGradStats::affine) &&
                             reader.in(NormGradApply::mask) == sums.in(NormGradStats::mask) &&
                             !sums.has_out(NormGradStats::masked);
    if (position != sums.position && !gates_again) return none;
  }
  return sums;
}

// The norm_stats whose scale and bias an affine_act can compute itself, from the sums of a convolution; none
// if it cannot. A shortcut with a norm of its own is left to the kernels that read both.
Node norm_of(const Node& act) {
  const Node norm = act.maker(AffineAct::affine, OpKind::norm_stats);
  const bool possible = norm && !act.has_in(AffineAct::shortcut_affine) &&
                        norm.attr<graph::NormAttr>().training && norm.has_in(NormStats::sums);
  return possible ? norm : Node{act.flow};
}

// relu(norm(y)) and nothing else, with a norm that can be computed there.
bool is_plain_activation(const Node& act) {
  const Node norm = act.is(OpKind::affine_act) ? norm_of(act) : Node{act.flow};
  return norm && norm.in(NormStats::y) == act.in(AffineAct::y) && !act.has_in(AffineAct::shortcut) &&
         !act.has_out(AffineAct::mask) && act.attr<graph::ActAttr>().relu;
}

// A norm and ReLU feeding a convolution that gives sums: norm_stats, affine_act, conv.
Group activated_conv(const Node& act) {
  const Node conv = act.reader(AffineAct::z, OpKind::conv);
  if (!is_plain_activation(act) || !conv.has_out(Conv::sums)) return {};
  return {.ops = {norm_of(act).position, act.position, conv.position}};
}

// The convolution of such a group.
Node conv_of(const Group& group, const Node& act) {
  return {act.flow, group.ops.empty() ? -1 : group.ops.back()};
}

// The gradients of a 1x1 convolution that expands 64 channels to 256, from that of the norm after it:
// norm_grad_apply, conv_grad_input, conv_grad_weight, and norm_grad_stats where the convolution read
// relu(affine(y)), which is recomputed. The gradient between norm and convolution is not stored.
Group match_expand_gradient(const Node& apply) {
  if (!is_ungated_apply(apply)) return {};
  const Node input = apply.reader(NormGradApply::dy, OpKind::conv_grad_input);
  const Node weight = apply.reader(NormGradApply::dy, OpKind::conv_grad_weight);
  if (!weight || apply.readers(NormGradApply::dy) != 2 || !expands(input)) return {};
  Group group{.ops = {apply.position, input.position, weight.position},
              .unstored = {apply.out(NormGradApply::dy)}};
  const Node sums = sums_behind(input);
  if (!sums || sums.has_in(NormGradStats::mask)) return group;
  const Node act = weight.maker(ConvGradWeight::x, OpKind::affine_act);
  if (!act || act.in(AffineAct::y) != sums.in(NormGradStats::y) ||
      act.in(AffineAct::affine) != sums.in(NormGradStats::affine) || act.has_in(AffineAct::shortcut) ||
      !act.attr<graph::ActAttr>().relu) {
    return {};
  }
  group.ops.push_back(sums.position);
  group.recomputes = {act.position};
  return group;
}

// The gradient of a norm, the input gradient of the 1x1 convolution before it, and the sums of the norm
// before that: norm_grad_apply, conv_grad_input, norm_grad_stats.
Group match_norm_gradient(const Node& apply) {
  if (!is_ungated_apply(apply)) return {};
  const Node input = apply.reader(NormGradApply::dy, OpKind::conv_grad_input), sums = sums_behind(input);
  if (!sums || sums.has_in(NormGradStats::mask) || !has_gemm_of(input, Prologue::norm_grad, Epilogue::gated))
    return {};
  return {.ops = {apply.position, input.position, sums.position},
          .in_place = {{apply.in(NormGradApply::g), apply.out(NormGradApply::dy)}}};
}

// The other of the two gradients that norm_grad_stats adds.
TensorId other_gradient(const Node& sums, TensorId dx) {
  return sums.in(sums.in(NormGradStats::g) == dx ? NormGradStats::g2 : NormGradStats::g);
}

// The input gradient of a 1x1 convolution and the sums of the norm that it reaches: conv_grad_input,
// norm_grad_stats. If another branch's gradient is added, only the total is stored.
Group match_gradient_sums(const Node& gradient) {
  if (!gradient.is(OpKind::conv_grad_input)) return {};
  const Node sums = sums_behind(gradient);
  const Epilogue epilogue = sums.has_in(NormGradStats::mask) ? Epilogue::joined : Epilogue::gated;
  if (!sums || !has_gemm_of(gradient, Prologue::none, epilogue)) return {};
  Group group{.ops = {gradient.position, sums.position}};
  if (const TensorId masked = sums.out(NormGradStats::masked); masked != kNone) {
    const TensorId dx = gradient.out(ConvGradInput::dx);
    group.unstored = {dx};
    group.in_place = {{other_gradient(sums, dx), masked}};
  }
  return group;
}

// The same if the block's shortcut has a norm too, whose sums are of the same total: conv_grad_input,
// norm_grad_stats, norm_grad_stats.
Group match_two_norm_sums(const Node& gradient) {
  Group group = match_gradient_sums(gradient);
  if (group.unstored.empty() || !has_gemm_of(gradient, Prologue::none, Epilogue::joined_two_norms)) return {};
  const Node shortcut = sums_behind(gradient).reader(NormGradStats::masked, OpKind::norm_grad_stats);
  if (!shortcut || shortcut.has_in(NormGradStats::g2) || shortcut.has_in(NormGradStats::affine) ||
      shortcut.has_in(NormGradStats::mask) || shortcut.has_out(NormGradStats::masked))
    return {};
  group.ops.push_back(shortcut.position);
  return group;
}

// gradient_sums if the other branch is a 1x1 convolution of stride 2, whose gradient is zero except at every
// second pixel: conv_grad_input, conv_grad_input, norm_grad_stats. Its memory may hold those pixels only.
Group match_sparse_gradient_sums(const Node& gradient) {
  if (!gradient.is(OpKind::conv_grad_input)) return {};
  const Node sums = sums_behind(gradient);
  if (!sums.has_in(NormGradStats::mask) || !sums.has_out(NormGradStats::masked)) return {};
  const TensorId dx = gradient.out(ConvGradInput::dx), other = other_gradient(sums, dx);
  const Node branch{gradient.flow, gradient.flow.maker(other, OpKind::conv_grad_input)};
  if (!branch || branch.readers(ConvGradInput::dx) != 1) return {};
  const graph::Shape& image = gradient.tensor(dx).shape;
  const bool strided = has_form(branch, branch.in(EitherConv::w), 1, 2) && image.h() >= 4 &&
                       image.w() >= 4;  // as SparseRows wants them
  if (!strided || !has_gemm_of(gradient, Prologue::none, Epilogue::joined_sparse)) return {};
  return {.ops = {gradient.position, branch.position, sums.position}, .unstored = {dx}};
}

// activated_conv() of the 1x1 convolution that expands 64 channels to 256. The activation is not stored.
Group match_activated_expand(const Node& act) {
  Group group = activated_conv(act);
  if (!expands(conv_of(group, act))) return {};
  group.unstored = {act.out(AffineAct::z)};
  return group;
}

// activated_conv() of other 1x1 convolutions. The activation is stored for the weight gradient, but not read
// here. With more channels, applying the norm in every block would take longer than the product.
Group match_activated_conv(const Node& act) {
  const Group group = activated_conv(act);
  const Node conv = conv_of(group, act);
  const bool possible = has_gemm_of(conv, Prologue::activate, Epilogue::sums) &&
                        channels_of(conv, conv.in(Conv::x)) <= kMostActivated;
  return possible ? group : Group{};
}

// The end of a block and the 1x1 convolution that the next one begins with: affine_act with a shortcut, conv,
// and the norm_stats before them.
Group match_join(const Node& act) {
  if (!act.is(OpKind::affine_act) || !act.has_in(AffineAct::shortcut) || !act.attr<graph::ActAttr>().relu)
    return {};
  const TensorId z = act.out(AffineAct::z);
  for (const int position : act.flow.readers(z)) {
    const Node conv{act.flow, position};
    if (!conv.is(OpKind::conv) || !conv.has_out(Conv::sums) ||
        !has_gemm_of(conv, Prologue::join, Epilogue::sums))
      continue;
    Group group{.ops = {act.position, position}, .in_place = {{act.in(AffineAct::shortcut), z}}};
    if (const Node norm = norm_of(act)) group.ops.push_back(norm.position);
    return group;
  }
  return {};
}

// Nothing but the update waits for a weight gradient: conv_grad_weight, and its addition to a total.
Group match_weight_gradient(const Node& op) {
  if (!op.is(OpKind::conv_grad_weight)) return {};
  Group group{.ops = {op.position}, .side_stream = true};
  if (const Node total = op.reader(ConvGradWeight::dw, OpKind::accumulate))
    group.ops.push_back(total.position);
  return group;
}

// activated_conv() of a 3x3 convolution. The activation is stored for the weight gradient, but not read here.
Group match_activated_conv3x3(const Node& act) {
  const Group group = activated_conv(act);
  return is_conv3x3(conv_of(group, act)) ? group : Group{};
}

// The same where the activation is not stored, because the weight gradient recomputes it.
Group match_unstored_conv3x3(const Node& act) {
  Group group = match_activated_conv3x3(act);
  if (!group.ops.empty()) group.unstored = {act.out(AffineAct::z)};
  return group;
}

// The weight gradient of a 3x3 convolution that read relu(norm(y)), which is recomputed: conv_grad_weight,
// and its addition to a total.
Group match_weight_gradient3x3(const Node& op) {
  if (!op.is(OpKind::conv_grad_weight)) return {};
  const TensorId x = op.in(ConvGradWeight::x);
  const bool fits = channels_of(op, x) == conv3x3::kSlice &&
                    channels_of(op, op.in(ConvGradWeight::dy)) == conv3x3::kSlice &&
                    conv3x3::DeepCut(images_of(op.tensor(x).shape)).possible();
  const Node act = op.maker(ConvGradWeight::x, OpKind::affine_act);
  if (!has_form(op, op.out(ConvGradWeight::dw), 3, 1) || !is_narrow(op, x) || !is_plain_activation(act) ||
      !fits)
    return {};
  Group group = match_weight_gradient(op);
  group.recomputes = {act.position};
  return group;
}

// The input gradient of a 3x3 convolution and the sums of the norm that it reaches: conv_grad_input,
// norm_grad_stats.
Group match_gradient_sums3x3(const Node& gradient) {
  if (!gradient.is(OpKind::conv_grad_input) || !is_conv3x3(gradient)) return {};
  const Node sums = sums_behind(gradient);
  if (!sums || sums.has_in(NormGradStats::mask)) return {};
  return {.ops = {gradient.position, sums.position}};
}

// A norm whose scale and bias are computed where they are applied: norm_stats, affine_act.
Group match_norm_act(const Node& act) {
  const Node norm = act.is(OpKind::affine_act) ? norm_of(act) : Node{act.flow};
  if (!norm) return {};
  const TensorId z = act.out(AffineAct::z);
  return {.ops = {norm.position, act.position},
          .in_place = {{act.in(AffineAct::y), z}, {act.in(AffineAct::shortcut), z}}};
}

// The stem: the norm's gradient gathers the pool's gradient, which is not stored: max_pool_grad,
// norm_grad_apply.
Group match_pool_gradient(const Node& pool) {
  if (!pool.is(OpKind::max_pool_grad)) return {};
  const TensorId dx = pool.out(MaxPoolGrad::dx);
  const Node apply = pool.reader(MaxPoolGrad::dx, OpKind::norm_grad_apply);
  const Pool shape = pool_of(pool.tensor(dx).shape, pool.tensor(pool.in(MaxPoolGrad::dy)).shape,
                             pool.attr<graph::PoolAttr>());
  if (pool.readers(MaxPoolGrad::dx) != 1 || apply.in(NormGradApply::g) != dx ||
      !apply.has_in(NormGradApply::affine) || apply.has_in(NormGradApply::mask) ||
      !is_even_stem_pool(shape, graph::size_of(pool.tensor(dx).dtype))) {
    return {};
  }
  return {.ops = {pool.position, apply.position}, .unstored = {dx}};
}

// One launch updates or averages every tensor.
Group match_update(const Node& update) {
  if (!plan::updates_one(update.op().kind)) return {};
  Group group;
  for (int i = 0; i < static_cast<int>(update.flow.graph().ops().size()); ++i) {
    if (update.flow.op(i).kind == update.op().kind) group.ops.push_back(i);
  }
  return group;
}

}  // namespace

std::vector<plan::GroupRow> group_rows(bool hopper) {
  using namespace groups;
  std::vector<plan::GroupRow> rows = {{kNormAct, match_norm_act},
                                      {kPoolGradient, match_pool_gradient},
                                      {kWeightGradient, match_weight_gradient},
                                      {kUpdate, match_update}};
  if (!hopper) return rows;
  rows.insert(rows.begin(), {{kExpandGradient, match_expand_gradient},
                             {kNormGradient, match_norm_gradient},
                             {kSparseGradientSums, match_sparse_gradient_sums},
                             {kTwoNormSums, match_two_norm_sums},
                             {kGradientSums, match_gradient_sums},
                             {kActivatedExpand, match_activated_expand},
                             {kActivatedConv, match_activated_conv},
                             {kJoin, match_join},
                             {kWeightGradient3x3, match_weight_gradient3x3},
                             {kActivatedConv3x3, match_unstored_conv3x3},
                             {kActivatedConv3x3, match_activated_conv3x3},
                             {kGradientSums3x3, match_gradient_sums3x3}});
  return rows;
}

}  // namespace redline::backend::cuda
