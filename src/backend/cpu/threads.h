// The backend's threads: OpenMP's, which oneDNN uses too, each pinned to a core if they use every core.
#pragma once

#include <sched.h>

#include <cstdint>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#include <thread>
#endif

namespace redline::backend::cpu {

class Threads {
 public:
  // count 0: one per physical core that this process may use. Throws UsageError when count is negative or far
  // beyond what the machine has.
  Threads(int count, bool pin);
  // One on each of these logical processors.
  explicit Threads(std::vector<int> processors);

  int count() const { return count_; }

  // Makes the calling thread the leader of the team for the lifetime of this object: sets the team's size
  // and, if pinned, its core. The caller's affinity is restored afterwards, so that threads it starts later
  // are not pinned.
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

// The logical processors that this process may use, one per physical core, by NUMA node; nodes without any
// are omitted.
std::vector<std::vector<int>> processors_by_node();

// Runs body(task) for every task in [0, tasks) on the team of the calling thread, in fixed shares. The caller
// sees what the tasks wrote. A body must not throw.
template <typename Body>
void parallel_for(std::int64_t tasks, const Body& body) {
#if defined(__SANITIZE_THREAD__)
  // The thread sanitizer does not see the barriers inside OpenMP's runtime, but it sees those of plain
  // threads.
  const auto share = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t task = first; task < last; ++task) body(task);
  };
  std::thread second(share, tasks / 2, tasks);
  share(0, tasks / 2);
  second.join();
#else
  if (tasks == 1) return body(std::int64_t{0});
#pragma omp parallel for schedule(static)
  for (std::int64_t task = 0; task < tasks; ++task) body(task);
#endif
}

}  // namespace redline::backend::cpu
