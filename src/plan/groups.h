// A group is a set of ops that a backend runs as one unit: one op, or several that a kernel fuses. Groups are
// chosen from the backend's table after autodiff and before memory is placed. Lifetimes are counted in
// groups, so nothing that a group reads can be overwritten while it runs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/operands.h"

namespace redline::plan {

// The index of an op's position, or of a tensor's id.
inline std::size_t at(int id) { return static_cast<std::size_t>(id); }

// An output that may overwrite an input, which nothing reads later.
struct InPlace {
  graph::TensorId input = graph::kNone, output = graph::kNone;
};

struct Group {
  std::string name = {};                       // of the row that matched; empty for an op alone
  std::vector<int> ops = {};                   // positions in graph.ops(), rising; an op is in one group
  std::vector<int> recomputes = {};            // ops of other groups that it recomputes instead of reading
  std::vector<graph::TensorId> unstored = {};  // outputs that it does not write to memory
  std::vector<InPlace> in_place = {};
  bool side_stream = false;  // may run concurrently with the groups that follow
  int join = -1;             // on the side stream: the first group that waits for it
};

// Which ops write and read each tensor of a graph.
class Dataflow {
 public:
  explicit Dataflow(const graph::Graph& graph);
  const graph::Graph& graph() const { return graph_; }
  const graph::Op& op(int position) const { return graph_.ops()[static_cast<std::size_t>(position)]; }
  // The op that writes a tensor first, if it is of that kind; else -1.
  int maker(graph::TensorId id, graph::OpKind kind) const;
  // Positions, rising. An op that reads the tensor twice appears once.
  const std::vector<int>& readers(graph::TensorId id) const;
  // The first reader of a kind; -1 when there is none.
  int reader(graph::TensorId id, graph::OpKind kind) const;

 private:
  const graph::Graph& graph_;
  std::vector<int> makers_;                // by TensorId
  std::vector<std::vector<int>> readers_;  // by TensorId
};

// An op of a graph, or none; whatever is asked of none is none. Must not outlive the dataflow.
struct Node {
  const Dataflow& flow;
  int position = -1;

  explicit operator bool() const { return position >= 0; }
  const graph::Op& op() const { return flow.op(position); }
  bool is(graph::OpKind kind) const { return position >= 0 && op().kind == kind; }
  template <typename Attr>
  const Attr& attr() const {
    return op().attr<Attr>();
  }
  // Operands, by their names in graph/operands.h.
  graph::TensorId in(int i) const { return position < 0 ? graph::kNone : graph::operands::in(op(), i); }
  graph::TensorId out(int i) const { return position < 0 ? graph::kNone : graph::operands::out(op(), i); }
  bool has_in(int i) const { return in(i) != graph::kNone; }
  bool has_out(int i) const { return out(i) != graph::kNone; }
  const graph::Tensor& tensor(graph::TensorId id) const { return flow.graph().tensor(id); }
  // What makes an input, and what reads an output, if it is of that kind.
  Node maker(int input, graph::OpKind kind) const { return {flow, flow.maker(in(input), kind)}; }
  Node reader(int output, graph::OpKind kind) const { return {flow, flow.reader(out(output), kind)}; }
  std::size_t readers(int output) const { return flow.readers(out(output)).size(); }
};

// A row of a backend's table. `match` is called for every op. It returns the group that has this op as its
// anchor, or one without ops if there is none. Which op of a group is its anchor is up to the row.
struct GroupRow {
  std::string name;
  Group (*match)(const Node& op);
};

// One group per op, in order.
std::vector<Group> each_alone(const graph::Graph& graph);

// The groups of a graph in execution order. Rows are tried in order, each on all ops that no earlier row
// took; every op that is left becomes a group of its own. A match is refused when another group reads a
// tensor that it would not store, and does not recompute it. At most `side_stream` groups run on the side
// stream at a time; with 0 all run on the main stream. Throws InternalError when groups wait for each other.
std::vector<Group> find_groups(const graph::Graph& graph, const std::vector<GroupRow>& rows, int side_stream);

// What a group reads from memory and writes to it. A tensor that it stores and reads again is in both.
std::vector<graph::TensorId> reads_of(const graph::Graph& graph, const Group& group);
std::vector<graph::TensorId> writes_of(const graph::Graph& graph, const Group& group);

// The op that a group is named after: its first convolution, else its last op.
int lead_of(const graph::Graph& graph, const Group& group);

}  // namespace redline::plan
