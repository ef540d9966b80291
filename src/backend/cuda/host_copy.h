// The methods of copying from host memory to the device: which kind of memory each reads from, and how it
// copies.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "backend/cuda/device.h"
#include "backend/input_copy.h"
#include "base/host_allocator.h"

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

  // Puts the copy on the stream. True when `from` may still be read until the stream gets past the copy;
  // false when it has been read. Small inputs, and memory of another kind than the method's, go through
  // chunks.
  bool start(std::byte* to, const void* from, std::size_t bytes, cudaStream_t stream);

 private:
  struct Chunk {
    PinnedMemory memory;  // allocated when first used
    Event copied;
  };
  void copy_through_chunks(std::byte* to, const void* from, std::size_t bytes, cudaStream_t stream);

  InputCopy method_;
  std::size_t most_bytes_;
  Chunk chunks_[2];
  int next_ = 0;
};

}  // namespace redline::backend::cuda
