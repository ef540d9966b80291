#include "backend/cpu/threads.h"

#include <hwloc.h>
#include <omp.h>

#include <memory>
#include <utility>

#include "base/error.h"

namespace redline::backend::cpu {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};

using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

// Null when it cannot be found out.
Topology load_topology() {
  hwloc_topology* raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

// The first logical processor of every physical core that this process may use, then the second ones, …
std::vector<int> allowed_processors(std::size_t& physical_cores) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  std::vector<int> order;
  if (const Topology topology = load_topology()) {
    const int cores = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE);
    for (unsigned sibling = 0; sibling < 8; ++sibling) {
      for (int core = 0; core < cores; ++core) {
        hwloc_obj* object =
            hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_CORE, static_cast<unsigned>(core));
        hwloc_obj* unit = sibling < object->arity ? object->children[sibling] : nullptr;
        if (unit == nullptr || unit->os_index >= CPU_SETSIZE) continue;
        if (CPU_ISSET(unit->os_index, &allowed)) order.push_back(static_cast<int>(unit->os_index));
      }
      if (sibling == 0) physical_cores = order.size();
    }
  }
  if (order.empty()) {
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &allowed)) order.push_back(i);
    }
    physical_cores = order.size();
  }
  return order;
}

void pin_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof set, &set);  // a refusal costs speed, not results
}

}  // namespace

Threads::Threads(int count, bool pin) {
  std::size_t physical_cores = 1;
  std::vector<int> processors = allowed_processors(physical_cores);
  constexpr int kMost = 1024;
  if (count < 0 || count > kMost)
    throw UsageError("--threads {} is not possible: use 1 to {}, or 0 for all", count, kMost);
  count_ = count > 0 ? count : static_cast<int>(physical_cores);
#if defined(__SANITIZE_THREAD__)
  pin = false;  // parallel_for starts threads there, which would inherit their leader's core
#endif
  // More threads than processors cannot be pinned one to one, and fewer than cores would always be pinned to
  // the first of them, where another process may have done the same: the kernel knows better.
  const bool takes_all = count_ >= static_cast<int>(physical_cores);
  if (pin && takes_all && count_ <= static_cast<int>(processors.size())) {
    processors.resize(static_cast<std::size_t>(count_));
    cores_ = std::move(processors);
  }
}

Threads::Threads(std::vector<int> processors)
    : count_(static_cast<int>(processors.size())), cores_(std::move(processors)) {
  check(count_ > 0, "a team without threads");
#if defined(__SANITIZE_THREAD__)
  cores_.clear();
#endif
}

std::vector<std::vector<int>> processors_by_node() {
  std::size_t physical_cores = 1;
  std::vector<int> processors = allowed_processors(physical_cores);
  processors.resize(physical_cores);
  std::vector<std::vector<int>> nodes;
  if (const Topology topology = load_topology()) {
    const int count = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_NUMANODE);
    for (int i = 0; i < count; ++i) {
      const hwloc_obj* node =
          hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
      std::vector<int> own;
      for (const int processor : processors) {
        if (hwloc_bitmap_isset(node->cpuset, static_cast<unsigned>(processor)) != 0) own.push_back(processor);
      }
      if (!own.empty()) nodes.push_back(std::move(own));
    }
  }
  if (nodes.empty()) nodes.push_back(std::move(processors));
  return nodes;
}

Threads::Lead::Lead(const Threads& threads) {
  omp_set_num_threads(threads.count_);
  if (threads.cores_.empty()) return;
  CPU_ZERO(&before_);
  if (sched_getaffinity(0, sizeof before_, &before_) != 0) return;
  pinned_ = true;
  const int* cores = threads.cores_.data();
  // OpenMP keeps its team between regions, but gives no promise: pin at every lead, which costs microseconds.
  parallel_for(threads.count_, [cores](std::int64_t thread) { pin_to(cores[thread]); });
}

Threads::Lead::~Lead() {
  if (pinned_) sched_setaffinity(0, sizeof before_, &before_);
}

}  // namespace redline::backend::cpu
