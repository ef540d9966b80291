#include "backend/cuda/group_table.h"

#include <algorithm>

#include "backend/cuda/kernels/conv3x3_tiles.h"
#include "backend/cuda/kernels/expand_grad.h"
#include "backend/cuda/kernels/gemm.h"
#include "backend/cuda/kernels/stem_pool.h"
#include "graph/operands.h"
#include "plan/plan.h"
#include "plan/traffic.h"

namespace redline::backend::cuda {
namespace {

// Over the kernels' arguments of the same names.
using graph::kNone;
using graph::Op;
using graph::OpKind;
using graph::TensorId;
using graph::operands::AffineAct;
using graph::operands::Conv;
using graph::operands::ConvGradInput;
using graph::operands::ConvGradWeight;
using graph::operands::EitherConv;
using graph::operands::in;
using graph::operands::MaxPoolGrad;
using graph::operands::NormGradApply;
using graph::operands::NormGradStats;
using graph::operands::NormStats;
using graph::operands::out;
using plan::Dataflow;
using plan::Group;

// Channels whose norm a 1x1 convolution applies itself.
constexpr std::int64_t kMostActivated = 128;

// The op at a position that may be -1, if it is of a kind.
const Op* op_at(const Dataflow& flow, int position, OpKind kind) {
  return position >= 0 && flow.op(position).kind == kind ? &flow.op(position) : nullptr;
}

bool is_narrow(const Dataflow& flow, TensorId id) {
  return graph::size_of(flow.graph().tensor(id).dtype) == 2;
}

std::int64_t channels(const Dataflow& flow, TensorId id) { return flow.graph().tensor(id).shape.c(); }

// Whether a convolution, or one of its gradients, has this form and no groups. `filter`: its weights.
bool has_form(const Dataflow& flow, const Op& op, TensorId filter, int kernel, int stride) {
  const auto& attr = op.attr<graph::ConvAttr>();
  return flow.graph().tensor(filter).shape[2] == kernel && attr.stride == stride && attr.pad == kernel / 2 &&
         attr.groups == 1;
}

// 1x1, stride 1, of 16-bit activations.
bool is_pointwise(const Dataflow& flow, const Op& op) {
  return has_form(flow, op, in(op, EitherConv::w), 1, 1) && is_narrow(flow, in(op, EitherConv::from));
}

bool expands(const Dataflow& flow, const Op& op) {
  const graph::Shape& w = flow.graph().tensor(in(op, EitherConv::w)).shape;
  return is_pointwise(flow, op) && w[0] == ExpandGrad::kTo && w[1] == ExpandGrad::kFrom;
}

// 3x3, stride 1, of images and channels that a kernel of our own can do. `to`: what it gives.
bool is_conv3x3(const Dataflow& flow, const Op& op, TensorId to) {
  const graph::Shape& shape = flow.graph().tensor(to).shape;
  return has_form(flow, op, in(op, EitherConv::w), 3, 1) && is_narrow(flow, in(op, EitherConv::from)) &&
         !conv3x3::tile_sizes(static_cast<int>(shape.h()), static_cast<int>(shape.w()),
                              static_cast<int>(channels(flow, in(op, EitherConv::from))),
                              static_cast<int>(shape.c()))
              .empty();
}

// A norm_grad_apply whose gradient needs no gate.
const Op* ungated_apply(const Dataflow& flow, int position) {
  const Op* apply = op_at(flow, position, OpKind::norm_grad_apply);
  const bool gated = apply != nullptr &&
                     (in(*apply, NormGradApply::affine) != kNone || in(*apply, NormGradApply::mask) != kNone);
  return gated ? nullptr : apply;
}

// The norm_grad_stats whose gradient a convolution's input gradient is or is added to; -1 where one kernel
// cannot do both. What is stored of the gradient is gated, and a norm_grad_apply that reads it gates it
// again, which changes nothing.
int sums_behind(const Dataflow& flow, const Op& gradient) {
  const TensorId dx = out(gradient, ConvGradInput::dx);
  const int position = flow.reader(dx, OpKind::norm_grad_stats);
  if (position < 0) return -1;
  const Op& sums = flow.op(position);
  const bool two = in(sums, NormGradStats::g2) != kNone;
  const bool has_mask = in(sums, NormGradStats::mask) != kNone;
  if (has_mask != two || has_mask == (in(sums, NormGradStats::affine) != kNone)) return -1;
  for (const int reader : flow.readers(dx)) {
    const Op& op = flow.op(reader);
    const bool gates_again = op.kind == OpKind::norm_grad_apply &&
                             in(op, NormGradApply::affine) == in(sums, NormGradStats::affine) &&
                             in(op, NormGradApply::mask) == in(sums, NormGradStats::mask) &&
                             out(sums, NormGradStats::masked) == kNone;
    if (reader != position && !gates_again) return -1;
  }
  return position;
}

// The same for a 1x1 convolution.
int sums_of_gradient(const Dataflow& flow, const Op& gradient) {
  return is_pointwise(flow, gradient) ? sums_behind(flow, gradient) : -1;
}

// The norm_stats whose scale and bias an affine_act can work out for itself; -1 where it cannot. The norm's
// sums come from a convolution. A shortcut with a norm of its own is left to the kernels that read both.
int norm_of(const Dataflow& flow, const Op& act) {
  const int position = flow.maker(in(act, AffineAct::affine), OpKind::norm_stats);
  if (position < 0 || in(act, AffineAct::shortcut_affine) != kNone) return -1;
  const Op& norm = flow.op(position);
  return norm.attr<graph::NormAttr>().training && in(norm, NormStats::sums) != kNone ? position : -1;
}

// relu(norm(y)) and nothing else, with a norm that can be worked out there.
bool is_plain_activation(const Dataflow& flow, const Op& act) {
  const int norm = norm_of(flow, act);
  return norm >= 0 && in(flow.op(norm), NormStats::y) == in(act, AffineAct::y) &&
         in(act, AffineAct::shortcut) == kNone && out(act, AffineAct::mask) == kNone &&
         act.attr<graph::ActAttr>().relu;
}

// A norm and ReLU feeding a convolution that gives sums: norm_stats, affine_act, conv.
Group activated_conv(const Dataflow& flow, int position) {
  const Op* act = op_at(flow, position, OpKind::affine_act);
  if (act == nullptr || !is_plain_activation(flow, *act)) return {};
  const int conv = flow.reader(out(*act, AffineAct::z), OpKind::conv);
  if (conv < 0 || out(flow.op(conv), Conv::sums) == kNone) return {};
  return {.ops = {norm_of(flow, *act), position, conv}};
}

// The gradients of a 1x1 convolution that expands 64 channels to 256, from that of the norm behind it:
// norm_grad_apply, conv_grad_input, conv_grad_weight, and norm_grad_stats where the convolution read
// relu(affine(y)), which is recomputed. The gradient between norm and convolution is not stored.
Group match_expand_gradient(const Dataflow& flow, int position) {
  const Op* apply = ungated_apply(flow, position);
  if (apply == nullptr) return {};
  const TensorId dy = out(*apply, NormGradApply::dy);
  const int input = flow.reader(dy, OpKind::conv_grad_input);
  const int weight = flow.reader(dy, OpKind::conv_grad_weight);
  if (input < 0 || weight < 0 || flow.readers(dy).size() != 2 || !expands(flow, flow.op(input))) return {};
  Group group{.ops = {position, input, weight}, .unstored = {dy}};
  const int sums = sums_of_gradient(flow, flow.op(input));
  if (sums < 0 || in(flow.op(sums), NormGradStats::mask) != kNone) return group;
  const int activation = flow.maker(in(flow.op(weight), ConvGradWeight::x), OpKind::affine_act);
  if (activation < 0) return {};
  const Op& act = flow.op(activation);
  if (in(act, AffineAct::y) != in(flow.op(sums), NormGradStats::y) ||
      in(act, AffineAct::affine) != in(flow.op(sums), NormGradStats::affine) ||
      in(act, AffineAct::shortcut) != kNone || !act.attr<graph::ActAttr>().relu) {
    return {};
  }
  group.ops.push_back(sums);
  group.recomputes = {activation};
  return group;
}

// Back through a norm and the 1x1 convolution in front of it to the sums of the norm before: norm_grad_apply,
// conv_grad_input, norm_grad_stats.
Group match_norm_gradient(const Dataflow& flow, int position) {
  const Op* apply = ungated_apply(flow, position);
  if (apply == nullptr) return {};
  const TensorId dy = out(*apply, NormGradApply::dy);
  const int input = flow.reader(dy, OpKind::conv_grad_input);
  if (input < 0) return {};
  const int sums = sums_of_gradient(flow, flow.op(input));
  if (sums < 0 || in(flow.op(sums), NormGradStats::mask) != kNone ||
      !has_gemm(Prologue::norm_grad, Epilogue::gated, channels(flow, dy),
                channels(flow, out(flow.op(input), ConvGradInput::dx)))) {
    return {};
  }
  return {.ops = {position, input, sums}, .in_place = {{in(*apply, NormGradApply::g), dy}}};
}

// The input gradient of a 1x1 convolution and the sums of the norm it arrives at: conv_grad_input,
// norm_grad_stats. Where another branch's gradient is added, only the sum is stored.
Group match_gradient_sums(const Dataflow& flow, int position) {
  const Op* gradient = op_at(flow, position, OpKind::conv_grad_input);
  if (gradient == nullptr) return {};
  const int sums = sums_of_gradient(flow, *gradient);
  const TensorId dx = out(*gradient, ConvGradInput::dx);
  if (sums < 0) return {};
  const Op& norm = flow.op(sums);
  const Epilogue epilogue = in(norm, NormGradStats::mask) == kNone ? Epilogue::gated : Epilogue::joined;
  if (!has_gemm(Prologue::none, epilogue, channels(flow, in(*gradient, ConvGradInput::dy)),
                channels(flow, dx)))
    return {};
  Group group{.ops = {position, sums}};
  if (const TensorId masked = out(norm, NormGradStats::masked); masked != kNone) {
    const TensorId g = in(norm, NormGradStats::g);
    group.unstored = {dx};
    group.in_place = {{g == dx ? in(norm, NormGradStats::g2) : g, masked}};
  }
  return group;
}

// The same where the other branch's gradient is that of a 1x1 convolution of stride 2, which is zero but for
// every second pixel: conv_grad_input, conv_grad_input, norm_grad_stats. Its memory holds those pixels.
Group match_sparse_gradient_sums(const Dataflow& flow, int position) {
  const Op* gradient = op_at(flow, position, OpKind::conv_grad_input);
  if (gradient == nullptr) return {};
  const TensorId dx = out(*gradient, ConvGradInput::dx);
  const int sums = sums_of_gradient(flow, *gradient);
  if (sums < 0) return {};
  const Op& norm = flow.op(sums);
  if (in(norm, NormGradStats::mask) == kNone || out(norm, NormGradStats::masked) == kNone) return {};
  const TensorId g = in(norm, NormGradStats::g), other = g == dx ? in(norm, NormGradStats::g2) : g;
  const int branch = flow.maker(other, OpKind::conv_grad_input);
  if (branch < 0 || flow.readers(other).size() != 1) return {};
  const graph::Shape& image = flow.graph().tensor(dx).shape;
  const bool strided = has_form(flow, flow.op(branch), in(flow.op(branch), EitherConv::w), 1, 2) &&
                       image.h() >= 4 && image.w() >= 4;  // as SparseRows wants them
  if (!strided || !has_gemm(Prologue::none, Epilogue::joined_sparse,
                            channels(flow, in(*gradient, ConvGradInput::dy)), channels(flow, dx)))
    return {};
  return {.ops = {position, branch, sums}, .unstored = {dx}};
}

// activated_conv() of the 1x1 convolution that expands 64 channels to 256. The activation is not stored.
Group match_activated_expand(const Dataflow& flow, int position) {
  Group group = activated_conv(flow, position);
  if (group.ops.empty() || !expands(flow, flow.op(group.ops.back()))) return {};
  group.unstored = {out(flow.op(position), AffineAct::z)};
  return group;
}

// activated_conv() of another 1x1 convolution. The activation is stored, for the weight gradient, and not
// read again here. With more channels every block would apply the norm to more than the product takes time
// for.
Group match_activated_conv(const Dataflow& flow, int position) {
  const Group group = activated_conv(flow, position);
  if (group.ops.empty()) return {};
  const Op& conv = flow.op(group.ops.back());
  const std::int64_t from = channels(flow, in(conv, Conv::x)), to = channels(flow, out(conv, Conv::y));
  const bool possible = is_pointwise(flow, conv) && from <= kMostActivated &&
                        has_gemm(Prologue::activate, Epilogue::sums, from, to);
  return possible ? group : Group{};
}

// The end of a block and the 1x1 convolution that the next one begins with: affine_act with a shortcut, conv,
// and the norm_stats before them.
Group match_join(const Dataflow& flow, int position) {
  const Op* act = op_at(flow, position, OpKind::affine_act);
  if (act == nullptr || in(*act, AffineAct::shortcut) == kNone || !act->attr<graph::ActAttr>().relu)
    return {};
  const TensorId z = out(*act, AffineAct::z);
  for (const int reader : flow.readers(z)) {
    const Op* conv = op_at(flow, reader, OpKind::conv);
    if (conv == nullptr || out(*conv, Conv::sums) == kNone || !is_pointwise(flow, *conv) ||
        !has_gemm(Prologue::join, Epilogue::sums, channels(flow, z), channels(flow, out(*conv, Conv::y)))) {
      continue;
    }
    Group group{.ops = {position, reader}, .in_place = {{in(*act, AffineAct::shortcut), z}}};
    if (const int norm = norm_of(flow, *act); norm >= 0) group.ops.push_back(norm);
    return group;
  }
  return {};
}

// Nothing but the update waits for a weight gradient: conv_grad_weight, and its addition to a total.
Group match_weight_gradient(const Dataflow& flow, int position) {
  const Op* op = op_at(flow, position, OpKind::conv_grad_weight);
  if (op == nullptr) return {};
  Group group{.ops = {position}, .side_stream = true};
  const int total = flow.reader(out(*op, ConvGradWeight::dw), OpKind::accumulate);
  if (total >= 0) group.ops.push_back(total);
  return group;
}

// activated_conv() of a 3x3 convolution. The activation is stored, for the weight gradient, and not read
// again here.
Group match_activated_conv3x3(const Dataflow& flow, int position) {
  const Group group = activated_conv(flow, position);
  if (group.ops.empty()) return {};
  const Op& conv = flow.op(group.ops.back());
  return is_conv3x3(flow, conv, out(conv, Conv::y)) ? group : Group{};
}

// The same where the activation is not stored, because the weight gradient recomputes it.
Group match_unstored_conv3x3(const Dataflow& flow, int position) {
  Group group = match_activated_conv3x3(flow, position);
  if (!group.ops.empty()) group.unstored = {out(flow.op(position), AffineAct::z)};
  return group;
}

// The weight gradient of a 3x3 convolution that read relu(norm(y)), which is recomputed: conv_grad_weight,
// and its addition to a total.
Group match_weight_gradient3x3(const Dataflow& flow, int position) {
  const Op* op = op_at(flow, position, OpKind::conv_grad_weight);
  if (op == nullptr) return {};
  const TensorId x = in(*op, ConvGradWeight::x);
  const graph::Shape& shape = flow.graph().tensor(x).shape;
  const int activation = flow.maker(x, OpKind::affine_act);
  if (!has_form(flow, *op, out(*op, ConvGradWeight::dw), 3, 1) || !is_narrow(flow, x) || activation < 0 ||
      !is_plain_activation(flow, flow.op(activation)) ||
      !conv3x3::DeepCut(1, static_cast<int>(shape.h()), static_cast<int>(shape.w()))
           .possible(static_cast<int>(shape.c()),
                     static_cast<int>(channels(flow, in(*op, ConvGradWeight::dy))))) {
    return {};
  }
  Group group = match_weight_gradient(flow, position);
  group.recomputes = {activation};
  return group;
}

// The input gradient of a 3x3 convolution and the sums of the norm it arrives at: conv_grad_input,
// norm_grad_stats.
Group match_gradient_sums3x3(const Dataflow& flow, int position) {
  const Op* gradient = op_at(flow, position, OpKind::conv_grad_input);
  if (gradient == nullptr || !is_conv3x3(flow, *gradient, out(*gradient, ConvGradInput::dx))) return {};
  const int sums = sums_behind(flow, *gradient);
  if (sums < 0 || in(flow.op(sums), NormGradStats::mask) != kNone) return {};
  return {.ops = {position, sums}};
}

// A norm's scale and bias, worked out where they are applied: norm_stats, affine_act.
Group match_norm_act(const Dataflow& flow, int position) {
  const Op* act = op_at(flow, position, OpKind::affine_act);
  const int norm = act == nullptr ? -1 : norm_of(flow, *act);
  if (norm < 0) return {};
  const TensorId z = out(*act, AffineAct::z);
  return {.ops = {norm, position},
          .in_place = {{in(*act, AffineAct::y), z}, {in(*act, AffineAct::shortcut), z}}};
}

// The stem: the norm's gradient gathers that of the pool, which is not stored: max_pool_grad,
// norm_grad_apply.
Group match_pool_gradient(const Dataflow& flow, int position) {
  const Op* pool = op_at(flow, position, OpKind::max_pool_grad);
  if (pool == nullptr) return {};
  const TensorId dx = out(*pool, MaxPoolGrad::dx);
  const int reader = flow.reader(dx, OpKind::norm_grad_apply);
  if (reader < 0 || flow.readers(dx).size() != 1) return {};
  const Op& apply = flow.op(reader);
  const graph::Tensor& to = flow.graph().tensor(dx);
  const Pool shape =
      pool_of(to.shape, flow.graph().tensor(in(*pool, MaxPoolGrad::dy)).shape, pool->attr<graph::PoolAttr>());
  if (in(apply, NormGradApply::g) != dx || in(apply, NormGradApply::affine) == kNone ||
      in(apply, NormGradApply::mask) != kNone || !is_even_stem_pool(shape, graph::size_of(to.dtype))) {
    return {};
  }
  return {.ops = {position, reader}, .unstored = {dx}};
}

// One launch updates or averages every tensor.
Group match_update(const Dataflow& flow, int position) {
  const OpKind kind = flow.op(position).kind;
  if (!plan::updates_one(kind)) return {};
  Group group;
  for (int i = 0; i < static_cast<int>(flow.graph().ops().size()); ++i) {
    if (flow.op(i).kind == kind) group.ops.push_back(i);
  }
  return group;
}

}  // namespace

std::vector<plan::GroupRow> group_rows(bool hopper) {
  using namespace groups;
  std::vector<plan::GroupRow> rows;
  if (hopper) {
    // clang-format off
    rows = {
        {kExpandGradient, match_expand_gradient},
        {kNormGradient, match_norm_gradient},
        {kSparseGradientSums, match_sparse_gradient_sums},
        {kGradientSums, match_gradient_sums},
        {kActivatedExpand, match_activated_expand},
        {kActivatedConv, match_activated_conv},
        {kJoin, match_join},
        {kWeightGradient3x3, match_weight_gradient3x3},
        {kActivatedConv3x3, match_unstored_conv3x3},
        {kActivatedConv3x3, match_activated_conv3x3},
        {kGradientSums3x3, match_gradient_sums3x3},
    };
    // clang-format on
  }
  rows.insert(rows.end(), {{kNormAct, match_norm_act},
                           {kPoolGradient, match_pool_gradient},
                           {kWeightGradient, match_weight_gradient},
                           {kUpdate, match_update}});
  return rows;
}

}  // namespace redline::backend::cuda
