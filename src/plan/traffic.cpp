#include "plan/traffic.h"

#include "plan/layout.h"

namespace redline::plan {

double counted_bytes(const graph::Graph& graph, const graph::Op& op) {
  double bytes = 0.0;
  for (const auto* ids : {&op.inputs, &op.outputs}) {
    for (const graph::TensorId id : *ids) {
      if (id != graph::kNone) bytes += static_cast<double>(stored_bytes(graph.tensor(id), Layout::plain));
    }
  }
  return bytes;
}

}  // namespace redline::plan
