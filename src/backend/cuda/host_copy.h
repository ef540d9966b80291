// Copying between host memory and the device, by every method of InputCopy: the kind of memory that it reads
// from, and the copy. Also a step's inputs, which are copied while the device computes the step before.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "backend/cuda/device.h"
#include "backend/input_copy.h"
#include "base/host_allocator.h"
#include "base/lease.h"

namespace redline::backend::cuda {

inline constexpr std::size_t kHostPage = 4096;
// The size of a chunk: large enough to make the cost of starting a copy small, small enough for the first to
// start early.
inline constexpr std::size_t kCopyChunk = std::size_t{2} << 20;

// Throws UnavailableError when the current device does not support the method.
void check_input_copy(InputCopy method);

// Allocates the memory that the method reads from.
HostAllocator host_allocator(InputCopy method);

// One allocation of such memory.
using HostMemory = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;
HostMemory allocate_host(InputCopy method, std::size_t bytes);

// Moves pages of managed memory to the device or back, in the order of the stream.
void prefetch(const void* managed, std::size_t bytes, bool to_device, cudaStream_t stream);

class HostCopy {
 public:
  HostCopy(InputCopy method, std::size_t most_bytes) : method_(method), most_bytes_(most_bytes) {}

  // Queues the copy. Returns true if `from` may be read until the copy is complete, false if it has been read
  // already. Small inputs, and memory of a kind that the method does not expect, are copied through chunks.
  bool start(std::byte* to, const void* from, std::size_t bytes, cudaStream_t stream);
  // Copies from the device to ordinary memory, and waits. While one chunk arrives, the one before it is
  // copied to its destination.
  void copy_back(std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t stream);

 private:
  struct Chunk {
    PinnedMemory memory;  // allocated when first used
    Event copied;
  };
  std::size_t chunk_bytes() const { return kCopyChunk < most_bytes_ ? kCopyChunk : most_bytes_; }
  Chunk& next_chunk();  // waits until it is free
  void copy_through_chunks(std::byte* to, const void* from, std::size_t bytes, cudaStream_t stream);

  InputCopy method_;
  std::size_t most_bytes_;
  Chunk chunks_[2];
  int next_ = 0;
};

// An input that the host can write while the device still computes the step before: two staging buffers, used
// alternately and filled on a side stream.
class InputSlots {
 public:
  InputSlots(std::size_t bytes, InputCopy method);

  // Queues the copy from `data` to `target`: on `copies` to a staging buffer, then on `compute`, behind
  // earlier work, to `target`. Holds the lease while the device may read `data`; first waits until the data
  // of the last write has been read. Without a lease, `data` has been read when this returns.
  void write(const void* data, std::size_t bytes, std::byte* target, cudaStream_t copies,
             cudaStream_t compute, Lease lease);
  // Releases the lease if the device has read the data. Does not wait.
  void give_back_read();

  std::size_t device_bytes() const { return slots_[0].staging.size() + slots_[1].staging.size(); }

 private:
  struct Slot {
    DeviceMemory staging;
    Event arrived, taken;
  };
  const Event& last_arrived() const { return slots_[1 - next_].arrived; }

  HostCopy copy_;
  Slot slots_[2];
  int next_ = 0;
  Lease lease_;  // on data that the last write may still read
};

}  // namespace redline::backend::cuda
