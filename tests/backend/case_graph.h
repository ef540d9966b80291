// A small graph put together op by op, as cases and sequences of ops want it: tensors are made where they are
// needed, and nothing but the ops' own shape rules is between them.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace redline::cases {

class CaseGraph {
 public:
  // `dtype` is that of activations.
  explicit CaseGraph(graph::DType dtype) : dtype_(dtype) {}

  graph::DType dtype() const { return dtype_; }
  graph::TensorId tensor(graph::Shape shape, graph::DType dtype, graph::TensorKind kind);
  graph::TensorId activation(graph::Shape shape) { return activation(shape, dtype_); }
  graph::TensorId activation(graph::Shape shape, graph::DType dtype);
  // fp32, a value or two for each channel.
  graph::TensorId channels(std::int64_t c, graph::TensorKind kind = graph::TensorKind::parameter);
  graph::TensorId pair(std::int64_t c);
  // A bit for each element of an activation of this shape, in whatever layout.
  graph::TensorId mask(const graph::Shape& of);
  graph::TensorId check();
  graph::TensorId scalars();

  void add_op(graph::OpKind kind, std::vector<graph::TensorId> inputs, std::vector<graph::TensorId> outputs,
              graph::Attributes attributes = {});
  // The graph as it is; another begins.
  graph::Graph take();

 private:
  graph::DType dtype_;
  graph::Graph graph_;
};

}  // namespace redline::cases
