#include "data/images/decode_memory.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>

#include "data/progress.h"

namespace redline::data {
namespace {

struct Budget {
  std::mutex mutex;
  std::condition_variable freed;
  std::int64_t used = 0;
  std::int64_t next_ticket = 0;
  std::set<std::int64_t> waiting;  // tickets
};

// Of the process: all threads share the machine's memory.
Budget& budget(MemoryFor use) {
  static std::array<Budget, 2> instances;
  return instances[static_cast<std::size_t>(use)];
}

}  // namespace

MemoryLease::MemoryLease(MemoryFor use, std::int64_t bytes, const std::function<bool()>& give_up)
    : use_(use), bytes_(std::max<std::int64_t>(0, bytes)) {
  constexpr auto kAskEvery = std::chrono::milliseconds(50);
  if (bytes_ == 0) return;
  Budget& b = budget(use_);
  std::unique_lock lock(b.mutex);
  const std::int64_t ticket = b.next_ticket++;
  b.waiting.insert(ticket);
  const auto is_next = [&] {
    return *b.waiting.begin() == ticket && (b.used == 0 || b.used + bytes_ <= memory_limit(use_));
  };
  while (!b.freed.wait_for(lock, kAskEvery, is_next)) {
    if (!give_up || !give_up()) continue;
    b.waiting.erase(ticket);
    b.freed.notify_all();
    throw Stopped{};
  }
  b.waiting.erase(ticket);
  b.used += bytes_;
  b.freed.notify_all();  // the next in line may fit too
}

MemoryLease::~MemoryLease() {
  if (bytes_ == 0) return;
  Budget& b = budget(use_);
  const std::lock_guard lock(b.mutex);
  b.used -= bytes_;
  b.freed.notify_all();
}

MemoryLease& MemoryLease::operator=(MemoryLease&& other) noexcept {
  MemoryLease old(std::move(*this));
  use_ = other.use_;
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

}  // namespace redline::data
