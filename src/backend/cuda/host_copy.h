// The ways from host memory to the device, each in this one place: which memory a way reads from, and how it
// brings bytes over.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "backend/cuda/device.h"
#include "backend/input_copy.h"
#include "base/host_allocator.h"

namespace redline::backend::cuda {

inline constexpr std::size_t kHostPage = 4096;
// Of a copy in pieces: large enough that starting one costs little of it, small enough that the first is soon
// on its way.
inline constexpr std::size_t kCopyChunk = std::size_t{2} << 20;

// Throws UnavailableError when the current device does not have this way.
void check_input_copy(InputCopy way);

// Memory to assemble what goes that way in.
HostAllocator host_allocator(InputCopy way);

// One piece of such memory.
using HostMemory = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;
HostMemory allocate_host(InputCopy way, std::size_t bytes);

// Moves pages of managed memory there, or says on a stream that they shall be.
void prefetch(const void* managed, std::size_t bytes, bool to_device, cudaStream_t stream);

class HostCopy {
 public:
  HostCopy(InputCopy way, std::size_t most_bytes) : way_(way), most_bytes_(most_bytes) {}

  // Puts the copy on the stream. True when `from` may be read until the stream is past it; else it has been
  // read. Memory that the way has no use for (of another kind, or very little) goes through chunks.
  bool start(std::byte* to, const void* from, std::size_t bytes, cudaStream_t stream);

 private:
  struct Chunk {
    PinnedMemory memory;  // allocated when first used
    Event copied;
  };
  void copy_through_chunks(std::byte* to, const void* from, std::size_t bytes, cudaStream_t stream);

  InputCopy way_;
  std::size_t most_bytes_;
  Chunk chunks_[2];
  int next_ = 0;
};

}  // namespace redline::backend::cuda
