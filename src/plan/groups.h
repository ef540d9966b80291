// Groups: what a backend does in one go, one op or several. They are chosen from the backend's table after
// autodiff and before memory is placed. Lifetimes are those of groups, so nothing that a group reads can be
// written over while it runs, whatever its ops are.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace redline::plan {

// An output that may be written over an input that nobody reads later.
struct InPlace {
  graph::TensorId input = graph::kNone, output = graph::kNone;
};

struct Group {
  std::string name = {};                       // of the row that matched; empty for an op alone
  std::vector<int> ops = {};                   // positions in graph.ops(), rising; an op is in one group
  std::vector<int> recomputes = {};            // ops of other groups whose result it computes for itself
  std::vector<graph::TensorId> unstored = {};  // outputs that it does not write to memory
  std::vector<InPlace> in_place = {};
  bool side_stream = false;  // may run beside the groups that follow
  int join = -1;             // on the side stream: the group that begins when it is done
};

// Who makes and reads each tensor of a graph.
class Dataflow {
 public:
  explicit Dataflow(const graph::Graph& graph);
  const graph::Graph& graph() const { return graph_; }
  const graph::Op& op(int position) const { return graph_.ops()[static_cast<std::size_t>(position)]; }
  // The position of an op if it is of that kind, else -1; -1 is of no kind.
  int maker(graph::TensorId id, graph::OpKind kind) const;
  // Positions, rising; an op that reads a tensor twice is there once.
  const std::vector<int>& readers(graph::TensorId id) const;
  // The first reader of a kind; -1 when there is none.
  int reader(graph::TensorId id, graph::OpKind kind) const;

 private:
  const graph::Graph& graph_;
  std::vector<int> makers_;                // by TensorId
  std::vector<std::vector<int>> readers_;  // by TensorId
};

// A row of a backend's table. `match` gives the group that begins with the op at a position (any of its ops
// will do, as long as it is always the same one), or one without ops where there is none.
struct GroupRow {
  std::string name;
  Group (*match)(const Dataflow& flow, int position);
};

// Every op on its own, in order.
std::vector<Group> each_alone(const graph::Graph& graph);

// The groups of a graph in the order in which they run: rows are tried in order, each on all ops that no
// earlier one took, and ops that are left are groups of their own. A match is refused where others read what
// it does not store and do not recompute it. Of the groups on the side stream, `side_stream` may be under way
// at a time; none: they run like the others. Throws InternalError when groups wait for each other.
std::vector<Group> find_groups(const graph::Graph& graph, const std::vector<GroupRow>& rows, int side_stream);

// What a group reads from memory and writes to it; what it makes for itself and stores is in both.
std::vector<graph::TensorId> reads_of(const graph::Graph& graph, const Group& group);
std::vector<graph::TensorId> writes_of(const graph::Graph& graph, const Group& group);

// The op by whose name a group goes: the first convolution, else the last op.
int lead_of(const graph::Graph& graph, const Group& group);

}  // namespace redline::plan
