// How host memory is allocated and released, for devices that need a special kind.
#pragma once

#include <cstddef>
#include <functional>

namespace redline {

// Both functions empty means ordinary memory. allocate returns memory aligned to 64 bytes or throws; release
// must not throw.
struct HostAllocator {
  std::function<void*(std::size_t bytes)> allocate;
  std::function<void(void* memory, std::size_t bytes)> release;
};

}  // namespace redline
