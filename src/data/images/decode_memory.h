// A limit on the memory of all threads of the process for large images and their files. Otherwise each thread
// could need as much as one large image takes: up to a gigabyte for 100 million pixels, and 256 MiB for its
// file.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace redline::data {

// What memory is for, in the order in which a thread may wait for both. That of files is returned only when
// the image is decoded, so decoders must never wait for memory that another thread keeps for a file.
enum class MemoryFor { files, decoding };

// For all leases together. One that needs more is alone.
constexpr std::int64_t memory_limit(MemoryFor use) {
  return std::int64_t{use == MemoryFor::files ? 512 : 1024} << 20;
}
// Less than this is not counted: a thread's buffers may keep that much from image to image.
constexpr std::int64_t kSmallImage = std::int64_t{16} << 20;

// Bytes that one thread may use, until it is destroyed. Movable.
class MemoryLease {
 public:
  MemoryLease() = default;
  // Waits, in order of arrival, until others have released enough. Never wait while holding another lease of
  // the same or a later use. give_up may be empty; once it is true, waiting ends with Stopped. It is called
  // often, and must not wait.
  explicit MemoryLease(MemoryFor use, std::int64_t bytes, const std::function<bool()>& give_up = {});
  ~MemoryLease();
  MemoryLease(MemoryLease&& other) noexcept : use_(other.use_), bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryLease& operator=(MemoryLease&& other) noexcept;

  std::int64_t bytes() const { return bytes_; }

 private:
  MemoryFor use_ = MemoryFor::decoding;
  std::int64_t bytes_ = 0;
};

}  // namespace redline::data
