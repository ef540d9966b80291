// The backend's threads: OpenMP's, which oneDNN uses too, one per core and pinned.
#pragma once

#include <sched.h>

#include <cstdint>
#include <vector>

namespace redline::backend::cpu {

class Threads {
 public:
  // count 0: one per physical core that this process may use. Throws UsageError when count is negative or far
  // beyond what the machine has.
  Threads(int count, bool pin);

  int count() const { return count_; }

  // Sets the calling thread up to lead the others while it lives: the team's size and, when pinned, its core.
  // The caller's affinity comes back afterwards, so that threads it starts later are free.
  class Lead {
   public:
    explicit Lead(const Threads& threads);
    ~Lead();
    Lead(const Lead&) = delete;
    Lead& operator=(const Lead&) = delete;

   private:
    bool pinned_ = false;
    cpu_set_t before_;
  };

 private:
  int count_;
  std::vector<int> cores_;  // one logical processor per thread; empty when not pinned
};

// Runs body(task) for every task in [0, tasks) on the team of the calling thread, in fixed shares. What a
// task writes is seen by the caller afterwards. A body must not throw.
template <typename Body>
void parallel_for(std::int64_t tasks, const Body& body);

}  // namespace redline::backend::cpu

#include "backend/cpu/threads_inl.h"
