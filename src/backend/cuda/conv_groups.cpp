#include "backend/cuda/conv_groups.h"

#include <fmt/format.h>

namespace redline::backend::cuda {
namespace {

using plan::Node;
using Act = operands::AffineAct;
using Apply = operands::NormGradApply;
using Stats = operands::NormGradStats;

// Two steps, one after the other; the first may be empty.
std::function<Step()> one_after_other(const std::function<Step()>& first,
                                      const std::function<Step()>& second) {
  if (!first) return second;
  return [=]() -> Step {
    return [a = first(), b = second()](cudaStream_t stream) {
      a(stream);
      b(stream);
    };
  };
}

}  // namespace

bool has_form(const graph::Graph& graph, const graph::Op& conv, int kernel, int stride) {
  const auto [x, w, y] = operands::conv_tensors(conv);
  const auto& attr = conv.attr<graph::ConvAttr>();
  return graph::size_of(graph.tensor(x).dtype) == 2 && graph.tensor(w).shape[2] == kernel &&
         attr.stride == stride && attr.pad == kernel / 2 && attr.groups == 1;
}

Node norm_of(const Node& act) {
  const Node norm = act.maker(Act::affine, OpKind::norm_stats);
  const bool possible = norm && !act.has_in(Act::shortcut_affine) && norm.attr<graph::NormAttr>().training &&
                        norm.has_in(operands::NormStats::sums);
  return possible ? norm : Node{act.flow};
}

bool is_plain_activation(const Node& op) {
  const Node norm = op.is(OpKind::affine_act) ? norm_of(op) : Node{op.flow};
  return norm && norm.in(operands::NormStats::y) == op.in(Act::y) && !op.has_in(Act::shortcut) &&
         !op.has_out(Act::mask) && op.attr<graph::ActAttr>().relu;
}

Node activated_conv(const Node& act) {
  const Node conv = act.reader(Act::z, OpKind::conv);
  return is_plain_activation(act) && conv.has_out(operands::Conv::sums) ? conv : Node{act.flow};
}

Node sums_behind(const Node& gradient) {
  const Node none{gradient.flow};
  const Node sums = gradient.reader(operands::ConvGradInput::dx, OpKind::norm_grad_stats);
  const bool has_mask = sums.has_in(Stats::mask);
  if (!sums || has_mask != sums.has_in(Stats::g2) || has_mask == sums.has_in(Stats::affine)) return none;
  for (const int position : gradient.flow.readers(gradient.out(operands::ConvGradInput::dx))) {
    const Node reader{gradient.flow, position};
    const bool gates_again = reader.is(OpKind::norm_grad_apply) &&
                             reader.in(Apply::affine) == sums.in(Stats::affine) &&
                             reader.in(Apply::mask) == sums.in(Stats::mask) && !sums.has_out(Stats::masked);
    if (position != sums.position && !gates_again) return none;
  }
  return sums;
}

std::string group_key(const GroupView& group, const OpView& conv) {
  using operands::EitherConv;
  const graph::Tensor &from = conv.in_tensor(EitherConv::from), &to = conv.out_tensor(EitherConv::to);
  return fmt::format("{}{}{}_{}_n{}h{}w{}c{}k{}", group.group().name, group.group().ops.size(),
                     group.group().unstored.empty() ? "" : "_unstored", name_of(from.dtype), to.shape.n(),
                     to.shape.h(), to.shape.w(), from.shape.c(), to.shape.c());
}

void add_in_parts(Candidates& candidates, const std::string& prefix, const std::vector<Candidates>& parts) {
  std::vector<Candidate> found{{prefix, nullptr}};
  for (const Candidates& part : parts) {
    std::vector<Candidate> longer;
    for (const Candidate& begun : found) {
      for (const Candidate& next : part.list) {
        const std::string name = next.name.empty() || begun.name == prefix ? next.name : kWith + next.name;
        longer.push_back({begun.name + name, one_after_other(begun.make, next.make)});
      }
    }
    found = std::move(longer);
  }
  candidates.list.insert(candidates.list.end(), found.begin(), found.end());
  for (const Candidates& part : parts) {
    for (const auto& [name, shape] : part.cudnn) candidates.cudnn.push_back({prefix + name, shape});
  }
}

Candidates whole_or_parts(const GroupView& group, std::vector<Candidate> whole, Shared& shared) {
  const bool forward = group.has(OpKind::conv);
  const OpView conv = group.op(forward ? OpKind::conv : OpKind::conv_grad_input);
  Candidates candidates{group_key(group, conv), std::move(whole)};
  if (!group.group().unstored.empty()) return candidates;
  const GroupView norm =
      forward ? group.part({OpKind::norm_stats, OpKind::affine_act}) : group.part({OpKind::norm_grad_stats});
  if (forward)
    add_in_parts(candidates, kApart, {make_affine_act(norm, shared), make_conv(group.part(conv), shared)});
  else
    add_in_parts(candidates, kApart,
                 {make_conv_grad_input(group.part(conv), shared), make_norm_grad_stats(norm, shared)});
  return candidates;
}

}  // namespace redline::backend::cuda
