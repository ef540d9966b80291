#include "backend/cuda/clears.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace redline::backend::cuda {
namespace {

using Nodes = std::vector<cudaGraphNode_t>;

// What one of CUDA's functions that list nodes gives: asked for their number first.
template <typename List>
Nodes nodes_by(const List& list) {
  std::size_t count = 0;
  check_cuda(list(nullptr, nullptr, &count), "looking at a graph");
  Nodes nodes(count);
  std::vector<cudaGraphEdgeData> edges(count);  // asked for, since it may not be left out
  if (count > 0) check_cuda(list(nodes.data(), edges.data(), &count), "looking at a graph");
  return nodes;
}

Nodes before(cudaGraphNode_t node) {
  return nodes_by([=](cudaGraphNode_t* nodes, cudaGraphEdgeData* edges, std::size_t* count) {
    return cudaGraphNodeGetDependencies(node, nodes, edges, count);
  });
}
Nodes after(cudaGraphNode_t node) {
  return nodes_by([=](cudaGraphNode_t* nodes, cudaGraphEdgeData* edges, std::size_t* count) {
    return cudaGraphNodeGetDependentNodes(node, nodes, edges, count);
  });
}

// The bytes that a node sets to zero; none where it does something else.
std::optional<ClearItem> cleared_by(cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  check_cuda(cudaGraphNodeGetType(node, &type), "looking at a graph");
  if (type != cudaGraphNodeTypeMemset) return std::nullopt;
  cudaMemsetParams memset{};
  check_cuda(cudaGraphMemsetNodeGetParams(node, &memset), "looking at a graph");
  const std::size_t bytes = memset.width * memset.elementSize;
  if (memset.value != 0 || memset.height != 1 || bytes % sizeof(unsigned) != 0 ||
      reinterpret_cast<std::uintptr_t>(memset.dst) % sizeof(unsigned) != 0) {
    return std::nullopt;
  }
  return ClearItem{static_cast<unsigned*>(memset.dst), static_cast<int>(bytes / sizeof(unsigned))};
}

void remove(cudaGraph_t graph, cudaGraphNode_t node) {
  for (cudaGraphNode_t to : after(node)) {
    const Nodes known = before(to);
    for (cudaGraphNode_t from : before(node)) {
      if (std::ranges::count(known, from) > 0) continue;
      check_cuda(cudaGraphAddDependencies(graph, &from, &to, nullptr, 1), "changing a graph");
    }
  }
  check_cuda(cudaGraphDestroyNode(node), "changing a graph");
}

}  // namespace

std::shared_ptr<DeviceMemory> gather_clears(cudaGraph_t graph, std::span<const MemorySpan> owned) {
  std::vector<ClearItem> items;
  const Nodes all = nodes_by([=](cudaGraphNode_t* nodes, cudaGraphEdgeData*, std::size_t* count) {
    return cudaGraphGetNodes(graph, nodes, count);
  });
  for (cudaGraphNode_t node : all) {
    const auto item = cleared_by(node);
    if (!item) continue;
    const auto* begin = reinterpret_cast<const std::byte*>(item->at);
    const std::byte* end = begin + static_cast<std::size_t>(item->words) * sizeof(unsigned);
    const bool ours = std::ranges::any_of(
        owned, [&](const MemorySpan& span) { return begin >= span.begin && end <= span.begin + span.bytes; });
    if (!ours) continue;
    items.push_back(*item);
    remove(graph, node);
  }
  if (items.empty()) return nullptr;
  auto table = std::make_shared<DeviceMemory>(items.size() * sizeof(ClearItem));
  check_cuda(cudaMemcpy(table->data(), items.data(), table->size(), cudaMemcpyHostToDevice),
             "writing a table");
  const Nodes roots = nodes_by([=](cudaGraphNode_t* nodes, cudaGraphEdgeData*, std::size_t* count) {
    return cudaGraphGetRootNodes(graph, nodes, count);
  });
  cudaGraphNode_t first = nullptr;
  check_cuda(add_clear(graph, &first, reinterpret_cast<const ClearItem*>(table->data()),
                       static_cast<int>(items.size())),
             "changing a graph");
  for (cudaGraphNode_t root : roots)
    check_cuda(cudaGraphAddDependencies(graph, &first, &root, nullptr, 1), "changing a graph");
  return table;
}

}  // namespace redline::backend::cuda
