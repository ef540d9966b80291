#include "plan/beside.h"

#include <cstddef>
#include <map>

namespace redline::plan {
namespace {

using graph::Graph;
using graph::Op;
using graph::OpKind;

}  // namespace

Graph sums_before_weight_gradients(const Graph& graph) {
  Graph out = graph.without_ops();
  const std::vector<Op>& ops = graph.ops();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != OpKind::conv_grad_weight) {
      out.add_op(ops[i]);
      continue;
    }
    // The gradient, and its addition to a total where there is one, move together.
    const std::size_t end = i + 1 < ops.size() && ops[i + 1].kind == OpKind::accumulate ? i + 2 : i + 1;
    const bool sums_follow = end < ops.size() && ops[end].kind == OpKind::norm_grad_stats;
    if (sums_follow) out.add_op(ops[end]);
    for (std::size_t moved = i; moved < end; ++moved) out.add_op(ops[moved]);
    i = sums_follow ? end : end - 1;
  }
  return out;
}

Graph norm_gradients_before_readers(const Graph& graph) {
  Graph out = graph.without_ops();
  std::map<graph::TensorId, const Op*> waiting;  // by output
  for (const Op& op : graph.ops()) {
    for (const graph::TensorId id : op.inputs) {
      if (const auto it = waiting.find(id); it != waiting.end()) {
        out.add_op(*it->second);
        waiting.erase(it);
      }
    }
    if (op.kind == OpKind::norm_grad_apply) {
      waiting[op.outputs[0]] = &op;
    } else {
      out.add_op(op);
    }
  }
  for (const auto& [id, op] : waiting) out.add_op(*op);
  return out;
}

std::vector<Beside> find_beside(const Graph& graph, int update_begin, int most) {
  const std::vector<Op>& ops = graph.ops();
  std::vector<Beside> found;
  if (most < 1) return found;
  std::vector<int> begins;
  for (int i = 0; i < update_begin; ++i) {
    if (ops[static_cast<std::size_t>(i)].kind == OpKind::conv_grad_weight) begins.push_back(i);
  }
  for (std::size_t k = 0; k < begins.size(); ++k) {
    const std::size_t later = k + static_cast<std::size_t>(most);
    const int join = later < begins.size() ? begins[later] : update_begin;
    found.push_back({begins[k], join});
    const int next = begins[k] + 1;
    if (next < update_begin && ops[static_cast<std::size_t>(next)].kind == OpKind::accumulate) {
      found.push_back({next, join});
    }
  }
  return found;
}

}  // namespace redline::plan
