// What all decoders of the process may hold at once for large images. Threads would otherwise multiply the
// memory that one large image takes: a picture of 100 million pixels needs up to a gigabyte while it is
// decoded.
#pragma once

#include <cstdint>
#include <utility>

namespace redline::data {

// For all leases together. One image that needs more is decoded alone.
constexpr std::int64_t kDecodeMemory = std::int64_t{1} << 30;
// Less than this is not counted: that is what a thread's buffers may keep from image to image.
constexpr std::int64_t kSmallImage = std::int64_t{16} << 20;

// Bytes that one decoder may use, until it is destroyed. Movable.
class MemoryLease {
 public:
  MemoryLease() = default;
  // Waits, in order of arrival, until others have given back enough. Never wait while holding another lease.
  explicit MemoryLease(std::int64_t bytes);
  ~MemoryLease();
  MemoryLease(MemoryLease&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryLease& operator=(MemoryLease&& other) noexcept;

  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

}  // namespace redline::data
