#include "backend/cuda/clears.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace redline::backend::cuda {
namespace {

using Nodes = std::vector<cudaGraphNode_t>;

// Calls one of CUDA's functions that list nodes, first for their number and then for the nodes.
template <typename List>
Nodes nodes_by(const List& list) {
  std::size_t count = 0;
  check_cuda(list(nullptr, nullptr, &count), "looking at a graph");
  Nodes nodes(count);
  std::vector<cudaGraphEdgeData> edges(count);  // not used, but CUDA requires it
  if (count > 0) check_cuda(list(nodes.data(), edges.data(), &count), "looking at a graph");
  return nodes;
}

Nodes earlier_than(cudaGraphNode_t node) {
  return nodes_by([=](auto... to) { return cudaGraphNodeGetDependencies(node, to...); });
}
Nodes later_than(cudaGraphNode_t node) {
  return nodes_by([=](auto... to) { return cudaGraphNodeGetDependentNodes(node, to...); });
}

cudaGraphNodeType type_of(cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  check_cuda(cudaGraphNodeGetType(node, &type), "looking at a graph");
  return type;
}

// CUDA does not allow removing nodes from a graph that allocates memory, as some libraries' kernels do.
bool allocates(cudaGraphNode_t node) {
  return type_of(node) == cudaGraphNodeTypeMemAlloc || type_of(node) == cudaGraphNodeTypeMemFree;
}

// The last nodes of what a stream has captured; none when it captures nothing.
Nodes ends_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  std::size_t count = 0;
  check_cuda(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, nullptr, &count),
             "looking at a capture");
  return status == cudaStreamCaptureStatusActive ? Nodes(nodes, nodes + count) : Nodes();
}

// The bytes that a node sets to zero; none where it does something else.
std::optional<ClearItem> cleared_by(cudaGraphNode_t node) {
  if (type_of(node) != cudaGraphNodeTypeMemset) return std::nullopt;
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
  for (cudaGraphNode_t to : later_than(node)) {
    const Nodes known = earlier_than(to);
    for (cudaGraphNode_t from : earlier_than(node)) {
      if (std::ranges::count(known, from) > 0) continue;
      check_cuda(cudaGraphAddDependencies(graph, &from, &to, nullptr, 1), "changing a graph");
    }
  }
  check_cuda(cudaGraphDestroyNode(node), "changing a graph");
}

}  // namespace

void FirstClears::before(cudaStream_t stream) { ends_ = ends_of(stream); }

void FirstClears::after(cudaStream_t stream) {
  Nodes own, next = ends_of(stream);  // the op's nodes, each before those that it waits for
  while (!next.empty()) {
    const cudaGraphNode_t node = next.back();
    next.pop_back();
    if (std::ranges::count(ends_, node) > 0 || std::ranges::count(own, node) > 0) continue;
    own.push_back(node);
    std::ranges::copy(earlier_than(node), std::back_inserter(next));
  }
  Nodes first;
  const auto is_first = [&](cudaGraphNode_t node) {
    return type_of(node) == cudaGraphNodeTypeMemset && std::ranges::count(first, node) == 0 &&
           std::ranges::all_of(earlier_than(node), [&](cudaGraphNode_t earlier) {
             return std::ranges::count(own, earlier) == 0 || std::ranges::count(first, earlier) > 0;
           });
  };
  for (auto found = own.begin(); found != own.end();) {
    found = std::ranges::find_if(own, is_first);
    if (found != own.end()) first.push_back(*found);
  }
  std::ranges::copy(first, std::back_inserter(memsets_));
}

std::shared_ptr<DeviceMemory> FirstClears::gather(cudaGraph_t graph,
                                                  std::span<const std::span<const std::byte>> owned) const {
  std::vector<ClearItem> items;
  if (std::ranges::any_of(nodes_of(graph), allocates)) return nullptr;
  for (cudaGraphNode_t node : memsets_) {
    const auto item = cleared_by(node);
    if (!item) continue;
    const auto* begin = reinterpret_cast<const std::byte*>(item->at);
    const std::byte* end = begin + static_cast<std::size_t>(item->words) * sizeof(unsigned);
    const bool ours = std::ranges::any_of(
        owned, [&](const auto& span) { return begin >= span.data() && end <= span.data() + span.size(); });
    if (!ours) continue;
    items.push_back(*item);
    remove(graph, node);
  }
  if (items.empty()) return nullptr;
  auto table = make_table(items);
  const Nodes roots =
      nodes_by([=](auto nodes, auto, auto count) { return cudaGraphGetRootNodes(graph, nodes, count); });
  cudaGraphNode_t first = nullptr;
  check_cuda(add_clear(graph, &first, reinterpret_cast<const ClearItem*>(table->data()),
                       static_cast<int>(items.size())),
             "changing a graph");
  for (cudaGraphNode_t root : roots)
    check_cuda(cudaGraphAddDependencies(graph, &first, &root, nullptr, 1), "changing a graph");
  return table;
}

}  // namespace redline::backend::cuda
