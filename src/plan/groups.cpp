#include "plan/groups.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "graph/operands.h"

namespace redline::plan {
namespace {

using graph::Graph;
using graph::kNone;
using graph::Op;
using graph::OpKind;
using graph::TensorId;
namespace operands = graph::operands;

// Where an elementwise op may write its output.
std::vector<InPlace> in_place(const Op& op) {
  using namespace operands;
  std::vector<InPlace> choices;
  const auto add = [&](int output, std::initializer_list<int> inputs) {
    for (const int input : inputs) choices.push_back({in(op, input), out(op, output)});
  };
  switch (op.kind) {
    case OpKind::relu:
      add(Relu::y, {Relu::x});
      break;
    case OpKind::add:
      add(Add::y, {Add::a, Add::b});
      break;
    case OpKind::affine_act:
      add(AffineAct::z, {AffineAct::y, AffineAct::shortcut});
      break;
    case OpKind::relu_grad:
      add(ReluGrad::dx, {ReluGrad::dy});
      break;
    case OpKind::norm_grad_stats:
      add(NormGradStats::masked, {NormGradStats::g, NormGradStats::g2});
      break;
    case OpKind::norm_grad_apply:
      add(NormGradApply::dy, {NormGradApply::g});
      break;
    default:
      break;
  }
  return choices;
}

Group alone(const Graph& graph, int position) {
  Group group;
  group.ops = {position};
  group.in_place = in_place(graph.ops()[at(position)]);
  return group;
}

bool contains(const std::vector<int>& ops, int op) { return std::ranges::count(ops, op) > 0; }

class Chooser {
 public:
  explicit Chooser(const Graph& graph) : flow_(graph), group_of_(graph.ops().size(), -1) {}

  void offer(const GroupRow& row) {
    for (int i = 0; i < count(); ++i) {
      if (group_of_[at(i)] >= 0) continue;
      Group group = row.match({flow_, i});
      group.name = row.name;
      if (is_free(group) && may_leave_out(group)) take(std::move(group));
    }
  }

  std::vector<Group> finish() {
    for (int i = 0; i < count(); ++i) {
      if (group_of_[at(i)] < 0) take(alone(flow_.graph(), i));
    }
    return ordered();
  }

 private:
  int count() const { return static_cast<int>(group_of_.size()); }

  bool is_free(const Group& group) const {
    return !group.ops.empty() &&
           std::ranges::all_of(group.ops, [&](int op) { return group_of_[at(op)] < 0; });
  }

  // Whether all other groups that read what a group does not store recompute it.
  bool may_leave_out(const Group& group) const {
    return std::ranges::all_of(group.unstored, [&](TensorId id) {
      return std::ranges::all_of(flow_.readers(id), [&](int reader) {
        if (contains(group.ops, reader)) return true;
        const int other = group_of_[at(reader)];
        return other >= 0 && std::ranges::any_of(groups_[at(other)].recomputes, [&](int op) {
                 return std::ranges::count(flow_.op(op).outputs, id) > 0;
               });
      });
    });
  }

  void take(Group group) {
    std::ranges::sort(group.ops);
    for (const int op : group.ops) group_of_[at(op)] = static_cast<int>(groups_.size());
    groups_.push_back(std::move(group));
  }

  // For each group, those that must run before it: they write what it reads, or read what it overwrites.
  std::vector<std::set<int>> find_earlier() const {
    std::vector<std::set<int>> earlier(groups_.size());
    std::vector<int> writer(flow_.graph().tensors().size(), -1);
    std::vector<std::vector<int>> readers(writer.size());
    for (int i = 0; i < count(); ++i) {
      const int own = group_of_[at(i)];
      const auto after = [&](int other) {
        if (other >= 0 && other != own) earlier[at(own)].insert(other);
      };
      const auto read = [&](const Op& op) {
        for (const TensorId id : op.inputs) {
          if (id == kNone) continue;
          after(writer[at(id)]);
          readers[at(id)].push_back(own);
        }
      };
      read(flow_.op(i));
      for (const int again : groups_[at(own)].recomputes) read(flow_.op(again));
      for (const TensorId id : flow_.op(i).outputs) {
        if (id == kNone) continue;
        after(writer[at(id)]);
        std::ranges::for_each(std::exchange(readers[at(id)], {}), after);
        writer[at(id)] = own;
      }
    }
    return earlier;
  }

  // As soon as their inputs are ready; groups that begin with an earlier op first.
  std::vector<Group> ordered() {
    const std::vector<std::set<int>> earlier = find_earlier();
    std::vector<std::vector<int>> later(groups_.size());
    std::vector<std::size_t> missing;
    std::set<std::pair<int, int>> ready;  // first op, group
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      for (const int other : earlier[i]) later[at(other)].push_back(static_cast<int>(i));
      missing.push_back(earlier[i].size());
      if (missing[i] == 0) ready.insert({groups_[i].ops.front(), static_cast<int>(i)});
    }
    std::vector<Group> order;
    while (!ready.empty()) {
      const int next = ready.extract(ready.begin()).value().second;
      for (const int other : later[at(next)]) {
        if (--missing[at(other)] == 0) ready.insert({groups_[at(other)].ops.front(), other});
      }
      order.push_back(std::move(groups_[at(next)]));
    }
    for (std::size_t i = 0; i < missing.size(); ++i) {
      check(missing[i] == 0, "group '{}' at {} waits for itself", groups_[i].name,
            missing[i] == 0 ? "" : flow_.op(groups_[i].ops.front()).name);
    }
    return order;
  }

  Dataflow flow_;
  std::vector<int> group_of_;  // by op; -1 while it has none
  std::vector<Group> groups_;
};

// Each is waited for once `most` later ones have begun, or when the update begins.
void set_joins(const Graph& graph, std::vector<Group>& groups, int most) {
  std::vector<std::size_t> begins;
  std::size_t end = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    groups[i].side_stream = groups[i].side_stream && most > 0;
    if (groups[i].side_stream) begins.push_back(i);
    if (graph.ops()[at(groups[i].ops.front())].phase != graph::Phase::update) end = i + 1;
  }
  for (std::size_t k = 0; k < begins.size(); ++k) {
    const std::size_t later = k + static_cast<std::size_t>(most);
    groups[begins[k]].join = static_cast<int>(later < begins.size() ? begins[later] : end);
  }
}

}  // namespace

Dataflow::Dataflow(const Graph& graph)
    : graph_(graph), makers_(graph.tensors().size(), -1), readers_(graph.tensors().size()) {
  for (int i = 0; i < static_cast<int>(graph.ops().size()); ++i) {
    for (const TensorId id : op(i).outputs) {
      if (id != kNone && makers_[at(id)] < 0) makers_[at(id)] = i;
    }
    for (const TensorId id : op(i).inputs) {
      if (id != kNone && !contains(readers_[at(id)], i)) readers_[at(id)].push_back(i);
    }
  }
}

int Dataflow::maker(TensorId id, OpKind kind) const {
  if (id == kNone) return -1;
  const int position = makers_[at(id)];
  return position >= 0 && op(position).kind == kind ? position : -1;
}

const std::vector<int>& Dataflow::readers(TensorId id) const {
  static const std::vector<int> kNobody;
  return id == kNone ? kNobody : readers_[at(id)];
}

int Dataflow::reader(TensorId id, OpKind kind) const {
  const auto found = std::ranges::find_if(readers(id), [&](int i) { return op(i).kind == kind; });
  return found == readers(id).end() ? -1 : *found;
}

std::vector<Group> each_alone(const Graph& graph) { return Chooser(graph).finish(); }

std::vector<Group> find_groups(const Graph& graph, const std::vector<GroupRow>& rows, int side_stream) {
  Chooser chooser(graph);
  for (const GroupRow& row : rows) chooser.offer(row);
  std::vector<Group> groups = chooser.finish();
  set_joins(graph, groups, side_stream);
  return groups;
}

std::vector<TensorId> reads_of(const Graph& graph, const Group& group) {
  std::set<TensorId> reads, recomputed(group.unstored.begin(), group.unstored.end());
  for (const int position : group.recomputes) {
    const Op& op = graph.ops()[at(position)];
    reads.insert(op.inputs.begin(), op.inputs.end());
    recomputed.insert(op.outputs.begin(), op.outputs.end());
  }
  for (const int position : group.ops) {
    const Op& op = graph.ops()[at(position)];
    reads.insert(op.inputs.begin(), op.inputs.end());
  }
  std::erase_if(reads, [&](TensorId id) { return id == kNone || recomputed.contains(id); });
  return {reads.begin(), reads.end()};
}

std::vector<TensorId> writes_of(const Graph& graph, const Group& group) {
  std::set<TensorId> writes;
  for (const int position : group.ops) {
    const Op& op = graph.ops()[at(position)];
    writes.insert(op.outputs.begin(), op.outputs.end());
  }
  std::erase_if(writes,
                [&](TensorId id) { return id == kNone || std::ranges::count(group.unstored, id) > 0; });
  return {writes.begin(), writes.end()};
}

int lead_of(const Graph& graph, const Group& group) {
  const auto found = std::ranges::find_if(group.ops, [&](int position) {
    const OpKind kind = graph.ops()[at(position)].kind;
    return kind == OpKind::conv || kind == OpKind::conv_grad_input || kind == OpKind::conv_grad_weight;
  });
  return found == group.ops.end() ? group.ops.back() : *found;
}

}  // namespace redline::plan
