// A backend for planning alone, a small model to plan, and rows of groups to plan it with.
#pragma once

#include <string>
#include <vector>

#include "graph/operands.h"
#include "plan/plan.h"

namespace redline::plan {

struct FakeBackend : Capabilities {
  bool pool = true, fused = true, blocked = false, sums = false;
  int side_stream = 0;
  std::vector<GroupRow> rows;

  bool supports(graph::OpKind kind, graph::DType) const override {
    if (kind == graph::OpKind::affine_pool) return pool;
    if (kind == graph::OpKind::affine_act) return fused;
    return true;
  }
  Layout layout(const graph::Graph& graph, graph::TensorId id) const override {
    const graph::Tensor& tensor = graph.tensor(id);
    const bool activation = tensor.kind == graph::TensorKind::activation && tensor.shape.rank() == 4;
    return blocked && activation ? Layout::blocked16 : Layout::plain;
  }
  bool conv_gives_sums(graph::DType) const override { return sums; }
  std::vector<GroupRow> group_rows() const override { return rows; }
  int side_stream_groups() const override { return side_stream; }
};

namespace fake_rows {

using namespace graph::operands;
using graph::OpKind;

// A weight gradient, and its addition to a total, on the side stream.
inline Group match_weight_gradient(const Node& op) {
  if (!op.is(OpKind::conv_grad_weight)) return {};
  Group group{.ops = {op.position}, .side_stream = true};
  if (const Node total = op.reader(ConvGradWeight::dw, OpKind::accumulate))
    group.ops.push_back(total.position);
  return group;
}
inline const GroupRow kWeightGradient{"weight_gradient", match_weight_gradient};

// Back through a norm and the convolution in front of it to the next norm's sums. In the graph the sums come
// three ops after the norm's gradient, with the convolution's weight gradient between them.
inline Group match_through_norm(const Node& apply) {
  if (!apply.is(OpKind::norm_grad_apply)) return {};
  const Node input = apply.reader(NormGradApply::dy, OpKind::conv_grad_input);
  const Node sums = input.reader(ConvGradInput::dx, OpKind::norm_grad_stats);
  if (!sums) return {};
  return {.ops = {apply.position, input.position, sums.position}};
}
inline const GroupRow kThroughNorm{"through_norm", match_through_norm};

// A weight gradient that recomputes what its convolution read, and a norm and ReLU that store nothing.
inline Group match_recomputing(const Node& op) {
  if (!op.is(OpKind::conv_grad_weight)) return {};
  const Node act = op.maker(ConvGradWeight::x, OpKind::affine_act);
  if (!act || act.has_in(AffineAct::shortcut)) return {};
  return {.ops = {op.position}, .recomputes = {act.position}};
}
inline const GroupRow kRecomputing{"recomputing", match_recomputing};
inline Group match_unstored(const Node& act) {
  if (!act.is(OpKind::affine_act)) return {};
  const Node conv = act.reader(AffineAct::z, OpKind::conv);
  if (!conv) return {};
  return {.ops = {act.position, conv.position}, .unstored = {act.out(AffineAct::z)}};
}
inline const GroupRow kUnstored{"unstored", match_unstored};

}  // namespace fake_rows

inline Options small(const std::string& model) {
  Options options;
  options.model.model = model;
  options.model.image_size = 64;
  options.model.batch = 2;
  options.model.classes = 10;
  return options;
}

}  // namespace redline::plan
