#include "backend/cuda/patterns.h"

#include <algorithm>

#include "backend/cuda/kernels/blended.h"
#include "backend/cuda/kernels/expand.h"
#include "plan/plan.h"

namespace redline::backend::cuda {
namespace {

bool is_pointwise(const graph::Graph& graph, const Op& op, TensorId weights) {
  const graph::Shape& w = graph.tensor(weights).shape;
  const auto& attr = op.attr<graph::ConvAttr>();
  return w[2] == 1 && attr.stride == 1 && attr.pad == 0;
}

bool expands(const graph::Graph& graph, const Op& op, TensorId weights) {
  const graph::Shape& w = graph.tensor(weights).shape;
  return is_pointwise(graph, op, weights) && w[0] == Expand::kTo && w[1] == Expand::kFrom;
}

bool can_blend(const graph::Graph& graph, Blended::Kind kind, TensorId wide, TensorId narrow) {
  const graph::Tensor& from = graph.tensor(wide);
  return graph::size_of(from.dtype) == 2 &&
         Blended::possible(kind, from.shape.c(), graph.tensor(narrow).shape.c());
}

}  // namespace

const Op* op_at(const graph::Graph& graph, std::size_t position, OpKind kind) {
  const auto& ops = graph.ops();
  return position < ops.size() && ops[position].kind == kind ? &ops[position] : nullptr;
}

// Positions of the ops that read a tensor.
std::vector<std::size_t> readers(const graph::Graph& graph, TensorId id) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    if (std::ranges::count(graph.ops()[i].inputs, id) > 0) found.push_back(i);
  }
  return found;
}

GradientAndSums::GradientAndSums(const graph::Graph& graph, std::size_t position) {
  const Op* first = op_at(graph, position, OpKind::conv_grad_input);
  const Op* second = op_at(graph, position + 1, OpKind::norm_grad_stats);
  if (first == nullptr || second == nullptr || !is_pointwise(graph, *first, first->inputs[1])) return;
  const TensorId made = first->outputs[0];
  if (second->inputs[0] != made && second->inputs[1] != made) return;
  for (std::size_t reader : readers(graph, made)) {
    const Op& op = graph.ops()[reader];
    const bool gates_again = op.kind == OpKind::norm_grad_apply && op.inputs[0] == made &&
                             op.inputs[2] == second->inputs[3] && op.inputs[3] == second->inputs[4];
    if (reader != position + 1 && !gates_again) return;
  }
  const bool has_mask = second->inputs[4] != graph::kNone, has_affine = second->inputs[3] != graph::kNone;
  const bool two = second->inputs[1] != graph::kNone;
  if (has_mask == has_affine || has_mask != two) return;
  gradient = first;
  sums = second;
}

GradientThroughNorm::GradientThroughNorm(const graph::Graph& graph, std::size_t position)
    : after(graph, position + 1) {
  const Op* first = op_at(graph, position, OpKind::norm_grad_apply);
  if (first == nullptr || !after || after.joins() || first->inputs[2] != graph::kNone ||
      first->inputs[3] != graph::kNone || after.gradient->inputs[0] != first->outputs[0]) {
    return;
  }
  if (can_blend(graph, Blended::Kind::gradient, first->inputs[1], after.gradient->outputs[0])) apply = first;
}

WholeGradient::WholeGradient(const graph::Graph& graph, std::size_t position) {
  const Op* first = op_at(graph, position, OpKind::norm_grad_apply);
  if (first == nullptr || first->inputs[2] != graph::kNone || first->inputs[3] != graph::kNone) return;
  input = op_at(graph, position + 1, OpKind::conv_grad_input);
  const GradientAndSums pair(graph, position + 1);
  sums = pair && !pair.joins() ? pair.sums : nullptr;
  weight = op_at(graph, position + (sums == nullptr ? 2 : 3), OpKind::conv_grad_weight);
  const TensorId dy = first->outputs[0];
  if (input == nullptr || weight == nullptr || input->inputs[0] != dy || weight->inputs[1] != dy ||
      readers(graph, dy).size() != 2 || !expands(graph, *input, input->inputs[1]) ||
      (sums != nullptr && !find_activation(graph))) {
    return;
  }
  apply = first;
}

bool WholeGradient::find_activation(const graph::Graph& graph) {
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    if (op.kind != OpKind::affine_act || op.outputs[0] != weight->inputs[0]) continue;
    activation = i;
    return op.inputs[0] == sums->inputs[2] && op.inputs[1] == sums->inputs[3] &&
           id_of(op.inputs, 2) == graph::kNone && op.attr<graph::ActAttr>().relu;
  }
  return false;
}

NormAndUse::NormAndUse(const graph::Graph& graph, std::size_t position) {
  const Op* first = op_at(graph, position, OpKind::norm_stats);
  const Op* second = op_at(graph, position + 1, OpKind::affine_act);
  if (first == nullptr || second == nullptr || second->inputs[1] != first->outputs[0]) return;
  if (id_of(first->inputs, 5) == graph::kNone || !first->attr<graph::NormAttr>().training) return;
  norm = first;
  act = second;
}

JoinAndConv::JoinAndConv(const graph::Graph& graph, std::size_t position) {
  const Op* first = op_at(graph, position, OpKind::affine_act);
  const Op* second = op_at(graph, position + 1, OpKind::conv);
  if (first == nullptr || second == nullptr || second->inputs[0] != first->outputs[0] ||
      id_of(first->inputs, 2) == graph::kNone || !first->attr<graph::ActAttr>().relu ||
      plan::sums_of(*second) == graph::kNone || !is_pointwise(graph, *second, second->inputs[1]) ||
      !can_blend(graph, Blended::Kind::join, first->outputs[0], second->outputs[0])) {
    return;
  }
  act = first;
  conv = second;
}

ActivatedExpansion::ActivatedExpansion(const graph::Graph& graph, std::size_t position,
                                       const NormAndUse& pair) {
  const Op* third = op_at(graph, position + 2, OpKind::conv);
  const Op& act = *pair.act;
  if (third == nullptr || third->inputs[0] != act.outputs[0] || !expands(graph, *third, third->inputs[1]) ||
      plan::sums_of(*third) == graph::kNone) {
    return;
  }
  if (act.inputs[0] != pair.norm->inputs[0] || id_of(act.inputs, 2) != graph::kNone ||
      id_of(act.outputs, 1) != graph::kNone || !act.attr<graph::ActAttr>().relu) {
    return;
  }
  for (const std::size_t reader : readers(graph, act.outputs[0])) {
    if (reader == position + 2) continue;
    constexpr std::size_t kWeight = 3;  // of the gradient's ops, the one that reads the activation
    if (gradient || reader < kWeight) return;
    const WholeGradient whole(graph, reader - kWeight);
    if (!whole || whole.sums == nullptr || whole.activation != position + 1) return;
    gradient = reader - kWeight;
  }
  conv = third;
}

int ops_merged_after(const graph::Graph& graph, std::size_t position) {
  if (const WholeGradient whole(graph, position); whole) return static_cast<int>(whole.step());
  return GradientThroughNorm(graph, position) ? static_cast<int>(GradientThroughNorm::kStep) : 0;
}

bool is_remade(const graph::Graph& graph, TensorId id) {
  if (graph::size_of(graph.tensor(id).dtype) != 2) return false;
  const auto& ops = graph.ops();
  const auto maker = std::ranges::find_if(
      ops, [&](const Op& op) { return op.kind == OpKind::affine_act && op.outputs[0] == id; });
  if (maker == ops.end() || maker == ops.begin()) return false;
  const auto first = static_cast<std::size_t>(maker - ops.begin()) - 1;
  const NormAndUse norm(graph, first);
  if (!norm) return false;
  const ActivatedExpansion expansion(graph, first, norm);
  if (!expansion || !expansion.gradient) return false;
  // A gradient that is added to others has no place of its own yet when all are made together.
  const WholeGradient whole(graph, *expansion.gradient);
  return std::ranges::none_of(readers(graph, whole.weight->outputs[0]),
                              [&](std::size_t reader) { return ops[reader].kind == OpKind::accumulate; });
}

}  // namespace redline::backend::cuda
