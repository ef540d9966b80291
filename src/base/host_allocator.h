// How memory on the host is got and given back, where a device wants it of a kind of its own.
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
