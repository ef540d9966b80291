// A backend for planning alone.
#pragma once

#include "plan/plan.h"

namespace redline::plan {

struct FakeBackend : Capabilities {
  bool pool = true, fused = true, blocked = false, sums = false;
  int beside = 0;

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
  int weight_gradients_beside() const override { return beside; }
};

}  // namespace redline::plan
