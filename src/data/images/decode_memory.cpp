#include "data/images/decode_memory.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace redline::data {
namespace {

struct Budget {
  std::mutex mutex;
  std::condition_variable freed;
  std::int64_t used = 0;
  std::int64_t next_ticket = 0, serving = 0;
};

// One for the process: all decoders share the machine's memory.
Budget& budget() {
  static Budget instance;
  return instance;
}

}  // namespace

MemoryLease::MemoryLease(std::int64_t bytes) : bytes_(std::max<std::int64_t>(0, bytes)) {
  if (bytes_ == 0) return;
  Budget& b = budget();
  std::unique_lock lock(b.mutex);
  const std::int64_t ticket = b.next_ticket++;
  b.freed.wait(lock,
               [&] { return b.serving == ticket && (b.used == 0 || b.used + bytes_ <= kDecodeMemory); });
  ++b.serving;
  b.used += bytes_;
  b.freed.notify_all();  // the next in line may fit too
}

MemoryLease::~MemoryLease() {
  if (bytes_ == 0) return;
  Budget& b = budget();
  const std::lock_guard lock(b.mutex);
  b.used -= bytes_;
  b.freed.notify_all();
}

MemoryLease& MemoryLease::operator=(MemoryLease&& other) noexcept {
  MemoryLease old(std::move(*this));
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

}  // namespace redline::data
