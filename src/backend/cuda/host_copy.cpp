#include "backend/cuda/host_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "backend/cuda/kernels/memory_study.h"

namespace redline::backend::cuda {
namespace {

// Below this size a copy is all latency, so labels and scalars may be in any kind of host memory.
constexpr std::size_t kSmall = std::size_t{64} << 10;

cudaMemoryType kind_of(const void* memory) {
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, memory), "querying an input's memory");
  return attributes.type;
}

HostAllocator page_locked(unsigned flags) {
  return {[flags](std::size_t bytes) {
            void* memory = nullptr;
            check_cuda(cudaHostAlloc(&memory, bytes, flags), "allocating page-locked memory");
            return memory;
          },
          [](void* memory, std::size_t) { cudaFreeHost(memory); }};
}

}  // namespace

void check_input_copy(InputCopy method) {
  if (method != InputCopy::managed) return;
  if (device_attribute(cudaDevAttrConcurrentManagedAccess) == 0)
    throw UnavailableError(
        "managed memory: the host may not touch it here while the device computes; use pinned memory");
}

HostAllocator host_allocator(InputCopy method) {
  if (method == InputCopy::pinned) return page_locked(cudaHostAllocDefault);
  if (method == InputCopy::write_combined) return page_locked(cudaHostAllocWriteCombined);
  if (method == InputCopy::mapped) return page_locked(cudaHostAllocMapped);
  if (method != InputCopy::managed) return {};  // ordinary memory
  return {[](std::size_t bytes) {
            void* memory = nullptr;
            check_cuda(cudaMallocManaged(&memory, bytes), "allocating managed memory");
            return memory;
          },
          [](void* memory, std::size_t) { cudaFree(memory); }};
}

HostMemory allocate_host(InputCopy method, std::size_t bytes) {
  const HostAllocator allocator = host_allocator(method);
  if (allocator.allocate)
    return HostMemory(static_cast<std::byte*>(allocator.allocate(bytes)),
                      [release = allocator.release, bytes](std::byte* memory) { release(memory, bytes); });
  void* memory = std::aligned_alloc(kHostPage, (bytes + kHostPage - 1) / kHostPage * kHostPage);
  if (memory == nullptr) throw std::bad_alloc();
  return HostMemory(static_cast<std::byte*>(memory), [](std::byte* own) { std::free(own); });
}

void prefetch(const void* managed, std::size_t bytes, bool to_device, cudaStream_t stream) {
  cudaMemLocation place{};
  place.type = to_device ? cudaMemLocationTypeDevice : cudaMemLocationTypeHost;
  place.id = to_device ? current_device() : 0;
  check_cuda(cudaMemPrefetchAsync(managed, bytes, place, 0, stream), "prefetching managed memory");
}

bool HostCopy::start(std::byte* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  const cudaMemoryType kind = kind_of(from);
  if (kind == cudaMemoryTypeHost && method_ == InputCopy::mapped) {
    void* seen = nullptr;  // by the device
    check_cuda(cudaHostGetDevicePointer(&seen, const_cast<void*>(from), 0), "mapping an input");
    copy_bytes(to, seen, bytes, kBusBlocks, stream);
    check_cuda(cudaGetLastError(), "reading an input over the bus");
    return true;
  }
  if (kind == cudaMemoryTypeManaged) {
    prefetch(from, bytes, /*to_device=*/true, stream);
    copy_async(to, from, bytes, stream);
    return true;
  }
  const bool as_it_is = method_ == InputCopy::pageable && bytes >= kSmall;
  if (kind == cudaMemoryTypeHost || as_it_is) {
    copy_async(to, from, bytes, stream);
    return true;  // the driver may still be reading ordinary memory
  }
  copy_through_chunks(to, from, bytes, stream);
  return false;
}

HostCopy::Chunk& HostCopy::next_chunk() {
  Chunk& chunk = chunks_[next_];
  next_ = 1 - next_;
  if (chunk.memory.size() == 0) chunk = {PinnedMemory(chunk_bytes()), make_event(false)};
  wait_for(chunk.copied);
  return chunk;
}

void HostCopy::copy_through_chunks(std::byte* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  for (std::size_t done = 0; done < bytes; done += chunk_bytes()) {
    const Chunk& chunk = next_chunk();
    const std::size_t part = std::min(chunk_bytes(), bytes - done);
    std::memcpy(chunk.memory.data(), static_cast<const std::byte*>(from) + done, part);
    copy_async(to + done, chunk.memory.data(), part, stream);
    record(chunk.copied, stream);
  }
}

void HostCopy::copy_back(std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t stream) {
  const auto size_at = [&](std::size_t at) { return std::min(chunk_bytes(), bytes - at); };
  const Chunk* before = nullptr;
  for (std::size_t asked = 0, done = 0; done < bytes; asked += chunk_bytes()) {
    const Chunk* chunk = nullptr;
    if (asked < bytes) {
      chunk = &next_chunk();
      copy_async(chunk->memory.data(), from + asked, size_at(asked), stream);
      record(chunk->copied, stream);
    }
    if (before != nullptr) {
      wait_for(before->copied);
      std::memcpy(to + done, before->memory.data(), size_at(done));
      done += chunk_bytes();
    }
    before = chunk;
  }
}

InputSlots::InputSlots(std::size_t bytes, InputCopy method) : copy_(method, bytes) {
  for (Slot& slot : slots_) slot = {DeviceMemory(bytes), make_event(false), make_event(false)};
}

void InputSlots::write(const void* data, std::size_t bytes, std::byte* target, cudaStream_t copies,
                       cudaStream_t compute, Lease lease) {
  if (lease_) {
    wait_for(last_arrived());
    lease_.reset();
  }
  Slot& slot = slots_[next_];
  next_ = 1 - next_;
  follow(copies, slot.taken);
  const bool reading = copy_.start(slot.staging.data(), data, bytes, copies);
  record(slot.arrived, copies);
  follow(compute, slot.arrived);
  copy_async(target, slot.staging.data(), bytes, compute);
  record(slot.taken, compute);
  if (!reading) return;
  if (lease)
    lease_ = std::move(lease);
  else
    wait_for(last_arrived());
}

void InputSlots::give_back_read() {
  if (lease_ && has_come(last_arrived())) lease_.reset();
}

}  // namespace redline::backend::cuda
