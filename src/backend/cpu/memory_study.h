// Main memory as this process's cores reach it: copies, reads, writes and sums in several orders, by number
// of threads, and across memory nodes where there are several.
#pragma once

#include <memory>

#include "backend/memory_study.h"

namespace redline::backend::cpu {

// With 1, 2, 4 … and `threads` threads, each pinned to a core.
std::shared_ptr<MemoryStudy> make_memory_study(int threads);

}  // namespace redline::backend::cpu
