#pragma once

#include "backend/cpu/threads.h"

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace redline::backend::cpu {

#if defined(__SANITIZE_THREAD__)
// The thread sanitizer does not see the barriers inside the OpenMP runtime; these tell it about fork and
// join.
inline void tsan_acquire(void* address) { __tsan_acquire(address); }
inline void tsan_release(void* address) { __tsan_release(address); }
#else
inline void tsan_acquire(void*) {}
inline void tsan_release(void*) {}
#endif

template <typename Body>
void parallel_for(std::int64_t tasks, const Body& body) {
  if (tasks <= 1) {
    if (tasks == 1) body(std::int64_t{0});
    return;
  }
  char fork = 0, join = 0;
  tsan_release(&fork);
#pragma omp parallel
  {
    tsan_acquire(&fork);
#pragma omp for schedule(static)
    for (std::int64_t task = 0; task < tasks; ++task) body(task);
    tsan_release(&join);
  }
  tsan_acquire(&join);
}

}  // namespace redline::backend::cpu
