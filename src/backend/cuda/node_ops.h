// Which op each kernel of a step's graph belongs to. Nodes cannot be labelled, so an op gets the nodes that
// were added since the last call. Needs no GPU. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>

#include "graph/op.h"

namespace redline::backend::cuda {

class NodeOps {
 public:
  using Node = void*;
  using IdOf = std::function<std::optional<std::uint64_t>(Node)>;

  // `nodes`: all of `capture` so far. Those added since the last call belong to `op`, or, if it is null, to
  // the step as a whole, as the stamps of its begin and end do. `id_of` is called for new nodes of an op
  // only.
  void add(std::uint64_t capture, std::span<const Node> nodes, const graph::Op* op, const IdOf& id_of) {
    std::set<Node>& seen = seen_[capture];
    for (const Node node : nodes) {
      if (!seen.insert(node).second || op == nullptr) continue;
      if (const std::optional<std::uint64_t> id = id_of(node)) ops_[*id] = op;
    }
  }
  // An instantiated graph runs copies of the captured nodes.
  void clone(std::uint64_t original, std::uint64_t copy) {
    if (const graph::Op* op = find(original); op != nullptr) ops_[copy] = op;
  }
  // Null: of no op, or of a graph that was not captured here.
  const graph::Op* find(std::uint64_t id) const {
    const auto found = ops_.find(id);
    return found == ops_.end() ? nullptr : found->second;
  }

 private:
  std::unordered_map<std::uint64_t, const graph::Op*> ops_;  // by id
  std::map<std::uint64_t, std::set<Node>> seen_;             // by capture: addresses of nodes are reused
};

}  // namespace redline::backend::cuda
