// A limit on the memory of all decoders of the process for large images. Otherwise each thread could need as
// much as one large image takes: up to a gigabyte for 100 million pixels.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace redline::data {

// For all leases together. One image that needs more is decoded alone.
constexpr std::int64_t kDecodeMemory = std::int64_t{1} << 30;
// Less than this is not counted: a thread's buffers may keep that much from image to image.
constexpr std::int64_t kSmallImage = std::int64_t{16} << 20;

// Bytes that one decoder may use, until it is destroyed. Movable.
class MemoryLease {
 public:
  MemoryLease() = default;
  // Waits, in order of arrival, until others have released enough. Never wait while holding another lease.
  // give_up may be empty; once it is true, waiting ends with Stopped. It is called often, and must not wait.
  explicit MemoryLease(std::int64_t bytes, const std::function<bool()>& give_up = {});
  ~MemoryLease();
  MemoryLease(MemoryLease&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryLease& operator=(MemoryLease&& other) noexcept;

  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

}  // namespace redline::data
