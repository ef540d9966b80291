#include "backend/host/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace redline::backend {

std::byte* HostPages::allocate(std::size_t bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw UnavailableError("the system refused {} bytes of memory ({}): use a smaller batch", bytes,
                           std::strerror(errno));
  }
  madvise(memory, bytes, MADV_HUGEPAGE);  // advice: nothing is lost when it is not taken
  return static_cast<std::byte*>(memory);
}

void HostPages::release(std::byte* memory, std::size_t bytes) noexcept { munmap(memory, bytes); }

}  // namespace redline::backend
