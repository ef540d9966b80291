// Measures main memory: copies, reads, writes and sums in several orders, by number of threads, and across
// NUMA nodes if there are several.
#pragma once

#include <memory>

#include "backend/memory_study.h"

namespace redline::backend::cpu {

// With 1, 2, 4 … and `threads` threads, each pinned to a core.
std::shared_ptr<MemoryStudy> make_memory_study(int threads);

}  // namespace redline::backend::cpu
