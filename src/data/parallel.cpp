#include "data/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace redline::data {

void parallel_for(std::int64_t count, int threads,
                  const std::function<void(std::int64_t item, int worker)>& body, const Progress& progress) {
  std::atomic<std::int64_t> next{0};
  std::atomic<std::int64_t> done{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&](int worker) {
    try {
      while (!stop.load(std::memory_order_relaxed)) {
        const std::int64_t item = next.fetch_add(1, std::memory_order_relaxed);
        if (item >= count) return;
        body(item, worker);
        const std::int64_t finished = done.fetch_add(1, std::memory_order_relaxed) + 1;
        if (!progress) continue;
        // A thread that finds the reporter busy continues working.
        const std::unique_lock lock(mutex, std::try_to_lock);
        if (lock.owns_lock() && !progress(finished, count)) throw Stopped{};
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      stop.store(true, std::memory_order_relaxed);
    }
  };
  const int extra =
      static_cast<int>(std::clamp<std::int64_t>(threads - 1, 0, std::max<std::int64_t>(count - 1, 0)));
  std::vector<std::thread> pool;
  try {
    for (int i = 0; i < extra; ++i) pool.emplace_back(work, i + 1);
  } catch (const std::system_error&) {
    // Fewer threads than asked for do the same work.
  }
  work(0);
  for (std::thread& thread : pool) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace redline::data
