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
inline Group match_weight_gradient(const Dataflow& flow, int position) {
  if (flow.op(position).kind != OpKind::conv_grad_weight) return {};
  Group group{.ops = {position}, .side_stream = true};
  const int total = flow.reader(out(flow.op(position), ConvGradWeight::dw), OpKind::accumulate);
  if (total >= 0) group.ops.push_back(total);
  return group;
}
inline const GroupRow kWeightGradient{"weight_gradient", match_weight_gradient};

// Back through a norm and the convolution in front of it to the next norm's sums. In the graph the sums come
// three ops after the norm's gradient, with the convolution's weight gradient between them.
inline Group match_through_norm(const Dataflow& flow, int position) {
  if (flow.op(position).kind != OpKind::norm_grad_apply) return {};
  const int input = flow.reader(out(flow.op(position), NormGradApply::dy), OpKind::conv_grad_input);
  if (input < 0) return {};
  const int sums = flow.reader(out(flow.op(input), ConvGradInput::dx), OpKind::norm_grad_stats);
  if (sums < 0) return {};
  return {.ops = {position, input, sums}};
}
inline const GroupRow kThroughNorm{"through_norm", match_through_norm};

// A weight gradient that recomputes what its convolution read, and a norm and ReLU that store nothing.
inline Group match_recomputing(const Dataflow& flow, int position) {
  if (flow.op(position).kind != OpKind::conv_grad_weight) return {};
  const int act = flow.maker(in(flow.op(position), ConvGradWeight::x), OpKind::affine_act);
  if (act < 0 || in(flow.op(act), AffineAct::shortcut) != graph::kNone) return {};
  return {.ops = {position}, .recomputes = {act}};
}
inline const GroupRow kRecomputing{"recomputing", match_recomputing};
inline Group match_unstored(const Dataflow& flow, int position) {
  if (flow.op(position).kind != OpKind::affine_act) return {};
  const graph::TensorId z = out(flow.op(position), AffineAct::z);
  const int conv = flow.reader(z, OpKind::conv);
  if (conv < 0) return {};
  return {.ops = {position, conv}, .unstored = {z}};
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
