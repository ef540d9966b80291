#include "run_op.h"

#include <memory>

#include "backend/reference/reference.h"
#include "plan/plan.h"

namespace redline::cases {

using graph::kNone;
using graph::TensorId;

OpResult run_op(const OpRun& run) {
  graph::Graph graph;
  const auto add = [&](const std::optional<Value>& value) {
    if (!value) return kNone;
    const std::string name = "t" + std::to_string(graph.tensors().size());
    return graph.add_tensor({name, value->shape, value->dtype, graph::TensorKind::activation});
  };
  std::vector<TensorId> inputs, outputs;
  for (const auto& input : run.inputs) inputs.push_back(add(input));
  for (std::size_t i = 0; i < run.outputs.size(); ++i) {
    const int source = i < run.in_place.size() ? run.in_place[i] : -1;
    outputs.push_back(source >= 0 ? inputs[static_cast<std::size_t>(source)] : add(run.outputs[i]));
  }
  graph.add_op({run.kind, "op", graph::Phase::forward, inputs, outputs, run.attributes});

  const auto backend = backend::make_reference_backend();
  const auto plan = std::make_shared<plan::Plan>(plan::make_plan(graph, *backend));
  const auto executable = backend->compile(plan, backend->make_state());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] != kNone) executable->write(inputs[i], run.inputs[i]->values);
  }
  executable->run(backend::Section::compute);

  const auto read = [&](TensorId id) {
    if (id == kNone) return std::vector<float>{};
    std::vector<float> values(static_cast<std::size_t>(graph.tensor(id).shape.elements()));
    executable->read(id, values);
    return values;
  };
  OpResult result;
  for (TensorId id : inputs) result.inputs.push_back(read(id));
  for (TensorId id : outputs) result.outputs.push_back(read(id));
  return result;
}

}  // namespace redline::cases
