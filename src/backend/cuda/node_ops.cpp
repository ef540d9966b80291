#include "backend/cuda/node_ops.h"

namespace redline::backend::cuda {

void NodeOps::add(std::uint64_t capture, std::span<const Node> nodes, const graph::Op* op,
                  const IdOf& id_of) {
  std::set<Node>& seen = seen_[capture];
  for (const Node node : nodes) {
    if (!seen.insert(node).second || op == nullptr) continue;
    if (const std::optional<std::uint64_t> id = id_of(node)) ops_[*id] = op;
  }
}

void NodeOps::clone(std::uint64_t original, std::uint64_t copy) {
  if (const graph::Op* op = find(original); op != nullptr) ops_[copy] = op;
}

const graph::Op* NodeOps::find(std::uint64_t id) const {
  const auto found = ops_.find(id);
  return found == ops_.end() ? nullptr : found->second;
}

}  // namespace redline::backend::cuda
