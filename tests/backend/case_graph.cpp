#include "case_graph.h"

#include <string>
#include <utility>

#include "plan/layout.h"

namespace redline::cases {

using graph::DType;
using graph::Shape;
using graph::TensorId;
using graph::TensorKind;

TensorId CaseGraph::tensor(Shape shape, DType dtype, TensorKind kind) {
  const std::string name = "t" + std::to_string(graph_.tensors().size());
  return graph_.add_tensor({name, shape, dtype, kind});
}

TensorId CaseGraph::activation(Shape shape, DType dtype) {
  return tensor(shape, dtype, TensorKind::activation);
}

TensorId CaseGraph::channels(std::int64_t c, TensorKind kind) { return tensor({c}, DType::f32, kind); }
TensorId CaseGraph::pair(std::int64_t c) { return activation({2, c}, DType::f32); }

TensorId CaseGraph::mask(const Shape& of) {
  const std::int64_t bits = plan::stored_elements(of, plan::Layout::blocked16);
  return activation({(bits + 7) / 8}, DType::u8);
}

TensorId CaseGraph::check() { return tensor({graph::kStepChecks}, DType::f32, TensorKind::metric); }
TensorId CaseGraph::scalars() { return tensor({graph::kStepScalars}, DType::f32, TensorKind::input); }

void CaseGraph::add_op(graph::OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
                       graph::Attributes attributes) {
  graph_.add_op({kind, "case", graph::Phase::forward, std::move(inputs), std::move(outputs), attributes});
}

graph::Graph CaseGraph::take() { return std::exchange(graph_, {}); }

}  // namespace redline::cases
