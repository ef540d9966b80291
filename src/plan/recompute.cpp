#include "plan/recompute.h"

#include <map>
#include <set>
#include <utility>

#include "graph/operands.h"

namespace redline::plan {
namespace {

using graph::Graph;
using graph::kNone;
using graph::Op;
using graph::OpKind;
using graph::Phase;
using graph::Tensor;
using graph::TensorId;
using graph::operands::AffineAct;
using graph::operands::in;
using graph::operands::out;

// What the backward pass reads from memory.
std::set<TensorId> kept_tensors(const Graph& graph, const std::vector<Group>& groups) {
  std::set<TensorId> kept;
  for (const Group& group : groups) {
    if (graph.ops()[static_cast<std::size_t>(group.ops.front())].phase != Phase::backward) continue;
    for (const TensorId id : reads_of(graph, group)) kept.insert(id);
  }
  return kept;
}

// The activations to recompute, with the ops that do it. The inputs of such an op are kept: of two blocks in
// a row, the second reads the output of the first.
std::map<TensorId, Op> choose(const Graph& graph, const std::set<TensorId>& kept, Recompute what) {
  std::map<TensorId, Op> chosen;
  for (const Op& op : graph.ops()) {
    if (op.kind != OpKind::affine_act || op.phase != Phase::forward) continue;
    const TensorId z = out(op, AffineAct::z), shortcut = in(op, AffineAct::shortcut);
    const bool wanted = shortcut == kNone || (what == Recompute::blocks && !chosen.contains(shortcut));
    if (wanted && kept.contains(z)) chosen.emplace(z, op);
  }
  return chosen;
}

}  // namespace

Graph recomputed(const Graph& graph, const std::vector<Group>& groups, Recompute what) {
  if (what == Recompute::none) return graph;
  std::map<TensorId, Op> chosen = choose(graph, kept_tensors(graph, groups), what);
  Graph result = graph.without_ops();
  std::map<TensorId, TensorId> copies;  // by what they are copies of
  const auto copy_of = [&](TensorId z) {
    const auto found = copies.find(z);
    if (found != copies.end()) return found->second;
    Tensor tensor = graph.tensor(z);
    tensor.name += ".again";
    const TensorId copy = copies[z] = result.add_tensor(std::move(tensor));
    Op op = chosen.at(z);
    op.phase = Phase::backward;
    op.outputs = {copy, kNone};  // the mask is kept: it has a bit where z has 16
    result.add_op(std::move(op));
    return copy;
  };
  for (Op op : graph.ops()) {
    if (op.phase == Phase::backward) {
      for (TensorId& id : op.inputs)
        if (chosen.contains(id)) id = copy_of(id);
    }
    result.add_op(std::move(op));
  }
  return result;
}

}  // namespace redline::plan
