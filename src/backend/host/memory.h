// Memory of a backend that runs on the host: page-aligned, zero until touched, in huge pages where the system
// gives them.
#pragma once

#include <cstddef>

#include "backend/owned_memory.h"

namespace redline::backend {

struct HostPages {
  static std::byte* allocate(std::size_t bytes);  // throws UnavailableError when the system refuses
  static void release(std::byte* memory, std::size_t bytes) noexcept;
};
using HostMemory = OwnedMemory<HostPages>;

}  // namespace redline::backend
