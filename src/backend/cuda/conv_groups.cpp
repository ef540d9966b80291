// 1x1 convolutions that do the work of the norms around them, on Hopper: each spares a pass over memory.
#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/group_table.h"
#include "backend/cuda/kernels/blended.h"
#include "backend/cuda/kernels/expand.h"
#include "backend/cuda/kernels/expand_grad.h"
#include "backend/cuda/kernels/pointwise.h"
#include "backend/cuda/step.h"

namespace redline::backend::cuda {
namespace {

namespace operands = graph::operands;
using graph::kNone;
using graph::OpKind;

std::int64_t rows_of(const graph::Shape& shape) { return shape.n() * shape.h() * shape.w(); }
int channels(const graph::Tensor& tensor) { return static_cast<int>(tensor.shape.c()); }

template <typename Launch>
Step reducing_step(const Launch& launch, Shared& shared) {
  shared.need(launch.partials() * sizeof(float));
  return [launch, &shared](cudaStream_t stream) { launch.run(shared.reduce_space(), stream); };
}

// A candidate for each way to launch it. Whatever is fastest most often comes first.
std::vector<Candidate> pointwise_candidates(const Pointwise& work, Shared& shared) {
  std::vector<Candidate> found;
  for (const PointwiseLaunch::Way& way : PointwiseLaunch::ways(work, shared.device())) {
    found.insert(
        found.begin(),
        {fmt::format("pointwise {} blocks, {} columns", way.blocks_each, 64 * way.strips),
         [=, &shared] { return reducing_step(PointwiseLaunch(work, shared.device(), way), shared); }});
  }
  return found;
}

Step blended_step(Blended work, const OpView& conv, const graph::Tensor& wide, const graph::Tensor& narrow,
                  const GroupView& group, Shared& shared) {
  work.type = type_of(wide.dtype);
  work.rows = rows_of(wide.shape);
  work.wide = channels(wide);
  work.narrow = channels(narrow);
  work.weights = group.weights(conv);
  work.out = conv.out(0);
  return reducing_step(BlendedLaunch(work, shared.device()), shared);
}

Expand expand_of(const OpView& conv, const std::byte* weights) {
  using operands::Conv;
  Expand work;
  work.type = type_of(conv.in_tensor(Conv::x).dtype);
  work.rows = rows_of(conv.out_tensor(Conv::y).shape);
  work.x = conv.in(Conv::x);
  work.weights = weights;
  work.out = conv.out(Conv::y);
  work.sums = conv.out<float>(Conv::sums);
  return work;
}

Step expand_gradient_step(const GroupView& group, Shared& shared) {
  using operands::ConvGradInput;
  using operands::ConvGradWeight;
  using Stats = operands::NormGradStats;
  const OpView apply = group.op(OpKind::norm_grad_apply), input = group.op(OpKind::conv_grad_input);
  const OpView weight = group.op(OpKind::conv_grad_weight);
  const graph::Tensor& y = apply.in_tensor(operands::NormGradApply::y);
  ExpandGrad work;
  work.type = type_of(y.dtype);
  work.rows = rows_of(y.shape);
  work.norm = norm_grad_apply_of(apply);
  work.x = weight.in(ConvGradWeight::x);
  work.weights = group.weights(input);
  work.dx = input.out(ConvGradInput::dx);
  work.dw = weight.out(ConvGradWeight::dw);
  work.dw_type = type_of(weight.out_tensor(ConvGradWeight::dw).dtype);
  if (group.has(OpKind::norm_grad_stats)) {
    const OpView sums = group.op(OpKind::norm_grad_stats);
    work.before = true;
    work.x = sums.in(Stats::y);
    work.affine = sums.in<float>(Stats::affine);
    work.saved = sums.in<float>(Stats::saved);
    work.dgamma = sums.out<float>(Stats::dgamma);
    work.dbeta = sums.out<float>(Stats::dbeta);
  }
  return reducing_step(ExpandGradLaunch(work, shared.device()), shared);
}

Step norm_gradient_step(const GroupView& group, Shared& shared) {
  using Apply = operands::NormGradApply;
  using Stats = operands::NormGradStats;
  const OpView apply = group.op(OpKind::norm_grad_apply), conv = group.op(OpKind::conv_grad_input);
  const OpView sums = group.op(OpKind::norm_grad_stats);
  Blended work;
  work.kind = Blended::Kind::gradient;
  work.u = apply.in(Apply::g);
  work.v = apply.in(Apply::y);
  work.made = apply.out(Apply::dy);
  work.after = norm_grad_apply_of(apply);
  work.before_y = sums.in(Stats::y);
  work.before_affine = sums.in<float>(Stats::affine);
  work.before_saved = sums.in<float>(Stats::saved);
  work.dgamma = sums.out<float>(Stats::dgamma);
  work.dbeta = sums.out<float>(Stats::dbeta);
  return blended_step(work, conv, apply.in_tensor(Apply::y), conv.out_tensor(operands::ConvGradInput::dx),
                      group, shared);
}

Step join_step(const GroupView& group, Shared& shared) {
  using Act = operands::AffineAct;
  const OpView act = group.op(OpKind::affine_act), conv = group.op(OpKind::conv);
  Blended work;
  work.kind = Blended::Kind::join;
  work.u = act.in(Act::shortcut);
  work.v = act.in(Act::y);
  work.made = act.out(Act::z);
  work.affine = act.in<float>(Act::affine);
  work.u_affine = act.in<float>(Act::shortcut_affine);
  work.mask = act.out<std::uint8_t>(Act::mask);
  work.sums = conv.out<float>(operands::Conv::sums);
  if (group.has(OpKind::norm_stats)) {
    work.finalizes = true;
    work.norm = norm_finalize_of(group.op(OpKind::norm_stats), shared);
  }
  return blended_step(work, conv, act.in_tensor(Act::y), conv.out_tensor(operands::Conv::y), group, shared);
}

Step activated_expand_step(const GroupView& group, Shared& shared) {
  const OpView norm = group.op(OpKind::norm_stats), conv = group.op(OpKind::conv);
  Expand work = expand_of(conv, group.weights(conv));
  work.x = norm.in(operands::NormStats::y);
  work.before = true;
  work.norm = norm_finalize_of(norm, shared);
  return reducing_step(ExpandLaunch(work, shared.device()), shared);
}

constexpr const char* kFused = "fused";

// The shape of a group's convolution, and what it does besides.
std::string key_of(const GroupView& group) {
  const bool forward = group.has(OpKind::conv);
  const OpView conv = group.op(forward ? OpKind::conv : OpKind::conv_grad_input);
  const graph::Tensor &from = conv.in_tensor(0), &to = conv.out_tensor(0);
  return fmt::format("{}{}{}_{}_{}x{}x{}", group.group().name, group.group().ops.size(),
                     group.group().unstored.empty() ? "" : "_joined", name_of(from.dtype), rows_of(to.shape),
                     channels(from), channels(to));
}

// Adds the parts of a group run one after the other: a candidate for each of the part that has most of them,
// none where a part has none.
void add_apart(Candidates& candidates, const std::vector<Candidates>& parts) {
  // cuDNN is not asked where another candidate is sure to be taken.
  if (std::ranges::any_of(parts, [](const Candidates& part) { return part.list.empty(); })) return;
  const auto most =
      std::ranges::max_element(parts, {}, [](const Candidates& part) { return part.list.size(); });
  for (std::size_t i = 0; i < most->list.size(); ++i) {
    std::vector<std::function<Step()>> makers;
    for (const Candidates& part : parts) makers.push_back(part.list.at(&part == &*most ? i : 0).make);
    candidates.list.push_back({kApart + most->list[i].name, [makers]() -> Step {
                                 std::vector<Step> steps;
                                 for (const auto& make : makers) steps.push_back(make());
                                 return [steps](cudaStream_t stream) {
                                   for (const Step& step : steps) step(stream);
                                 };
                               }});
  }
}

// A 1x1 convolution's input gradient with the sums of the norm it arrives at.
std::vector<Candidate> pointwise_gradients(const GroupView& group, Shared& shared) {
  using Stats = operands::NormGradStats;
  const OpView gradient = group.op(OpKind::conv_grad_input), sums = group.op(OpKind::norm_grad_stats);
  const graph::Tensor& from = gradient.in_tensor(operands::ConvGradInput::dy);
  const graph::Tensor& to = gradient.out_tensor(operands::ConvGradInput::dx);
  const bool joins = sums.in(Stats::mask) != nullptr;
  const bool dx_first = sums.op().inputs[Stats::g] == gradient.op().outputs[operands::ConvGradInput::dx];
  Pointwise work;
  work.type = type_of(from.dtype);
  work.epilogue = joins ? Epilogue::joined : Epilogue::gated;
  work.rows = rows_of(to.shape);
  work.k = channels(from);
  work.n = channels(to);
  work.a = gradient.in(operands::ConvGradInput::dy);
  work.b = group.weights(gradient);
  work.out = sums.out(Stats::masked) != nullptr ? sums.out(Stats::masked)
                                                : gradient.out(operands::ConvGradInput::dx);
  work.y = sums.in(Stats::y);
  work.affine = sums.in<float>(Stats::affine);
  work.mask = sums.in<std::uint8_t>(Stats::mask);
  work.saved = sums.in<float>(Stats::saved);
  work.other = sums.in(dx_first ? Stats::g2 : Stats::g);
  work.first = sums.out<float>(Stats::dbeta);
  work.second = sums.out<float>(Stats::dgamma);
  return pointwise_candidates(work, shared);
}

}  // namespace

Candidates make_expand_gradient(const GroupView& group, Shared& shared) {
  return only([group, &shared] { return expand_gradient_step(group, shared); });
}
Candidates make_activated_expand(const GroupView& group, Shared& shared) {
  return only([group, &shared] { return activated_expand_step(group, shared); });
}

// Where tensors are small, kernels for single ops may be faster.
Candidates make_norm_gradient(const GroupView& group, Shared& shared) {
  Candidates candidates{key_of_parts(group),
                        {{kFused, [group, &shared] { return norm_gradient_step(group, shared); }}}};
  const GroupView apply = group.part({OpKind::norm_grad_apply});
  const GroupView rest = group.part({OpKind::conv_grad_input, OpKind::norm_grad_stats});
  add_apart(candidates, {make_norm_grad_apply(apply, shared), {"", pointwise_gradients(rest, shared)}});
  add_apart(candidates, {make_norm_grad_apply(apply, shared),
                         make_conv_grad_input(group.part({OpKind::conv_grad_input}), shared),
                         make_norm_grad_stats(group.part({OpKind::norm_grad_stats}), shared)});
  return candidates;
}

Candidates make_join(const GroupView& group, Shared& shared) {
  Candidates candidates{key_of_parts(group),
                        {{kFused, [group, &shared] { return join_step(group, shared); }}}};
  add_apart(candidates, {make_affine_act(group.part({OpKind::norm_stats, OpKind::affine_act}), shared),
                         make_conv(group.part({OpKind::conv}), shared)});
  return candidates;
}

Candidates make_gradient_sums(const GroupView& group, Shared& shared) {
  const std::string parts = key_of_parts(group);
  Candidates candidates{parts.empty() ? key_of(group) : parts, pointwise_gradients(group, shared)};
  if (!parts.empty()) {
    add_apart(candidates, {make_conv_grad_input(group.part({OpKind::conv_grad_input}), shared),
                           make_norm_grad_stats(group.part({OpKind::norm_grad_stats}), shared)});
  }
  return candidates;
}

Candidates make_activated_conv3x3(const GroupView& group, Shared& shared) {
  Candidates candidates{key_of_parts(group), conv3x3_candidates(group, shared)};
  add_apart(candidates, {make_affine_act(group.part({OpKind::norm_stats, OpKind::affine_act}), shared),
                         make_conv(group.part({OpKind::conv}), shared)});
  return candidates;
}
Candidates make_gradient_sums3x3(const GroupView& group, Shared& shared) {
  Candidates candidates{key_of_parts(group), conv3x3_candidates(group, shared)};
  add_apart(candidates, {make_conv_grad_input(group.part({OpKind::conv_grad_input}), shared),
                         make_norm_grad_stats(group.part({OpKind::norm_grad_stats}), shared)});
  return candidates;
}

std::string key_of_parts(const GroupView& group) {
  const std::string& name = group.group().name;
  if (name == groups::kActivatedConv3x3 || name == groups::kGradientSums3x3) {
    const graph::Shape& shape =
        group.op(group.has(OpKind::conv) ? OpKind::conv : OpKind::conv_grad_input).out_tensor(0).shape;
    return fmt::format("{}_{}x{}", key_of(group), shape.h(), shape.w());
  }
  const bool gated = name == groups::kGradientSums && group.group().unstored.empty();
  return gated || name == groups::kNormGradient || name == groups::kJoin ? key_of(group) : "";
}

std::vector<Candidate> pointwise_convs(const GroupView& group, Shared& shared) {
  using operands::Conv;
  const OpView op = group.op();
  const graph::Tensor &x = op.in_tensor(Conv::x), &w = op.in_tensor(Conv::w), &y = op.out_tensor(Conv::y);
  const auto& attr = op.attr<graph::ConvAttr>();
  if (graph::size_of(x.dtype) != 2 || w.shape[2] != 1 || attr.stride != 1 || attr.pad != 0 ||
      op.in_layout(Conv::x) != plan::Layout::channels_last) {
    return {};
  }
  Pointwise work;
  work.type = type_of(x.dtype);
  work.rows = rows_of(y.shape);
  work.k = channels(x);
  work.n = channels(y);
  work.a = op.in(Conv::x);
  work.b = group.weights(op);
  work.out = op.out(Conv::y);
  work.first = op.out<float>(Conv::sums);
  work.second = work.first + work.n;
  std::vector<Candidate> found = pointwise_candidates(work, shared);
  if (!found.empty() && work.k == Expand::kFrom && work.n == Expand::kTo) {
    found.insert(found.begin(), {"expand", [work = expand_of(op, group.weights(op)), &shared] {
                                   return reducing_step(ExpandLaunch(work, shared.device()), shared);
                                 }});
  }
  return found;
}

}  // namespace redline::backend::cuda
