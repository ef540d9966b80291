// A backend for planning alone, and a small model to plan.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace redline::plan {

struct FakeBackend : Capabilities {
  bool pool = true, fused = true, blocked = false, sums = false;
  int beside = 0;
  bool remade = false;  // whether what a norm and ReLU alone give is never stored
  int stays = 0;        // ops for which the y of a norm's gradient that gates nothing is read still

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
  int input_stays(const graph::Graph& graph, int op) const override {
    const std::vector<graph::TensorId>& inputs = graph.ops()[static_cast<std::size_t>(op)].inputs;
    return inputs[2] == graph::kNone && inputs[3] == graph::kNone ? stays : 0;
  }
  bool remakes(const graph::Graph& graph, graph::TensorId id) const override {
    return remade && std::ranges::any_of(graph.ops(), [&](const graph::Op& op) {
             return op.kind == graph::OpKind::affine_act && op.outputs[0] == id &&
                    op.inputs[2] == graph::kNone;
           });
  }
  int weight_gradients_beside() const override { return beside; }
};

inline Options small(const std::string& model) {
  Options options;
  options.model.model = model;
  options.model.image_size = 64;
  options.model.batch = 2;
  options.model.classes = 10;
  return options;
}

}  // namespace redline::plan
