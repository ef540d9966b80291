#include "backend/host/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace redline::backend {

HostMemory::HostMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw UnavailableError("the system refused {} bytes of memory ({}): use a smaller batch", bytes,
                           std::strerror(errno));
  }
  madvise(memory, bytes, MADV_HUGEPAGE);  // advice: nothing is lost when it is not taken
  data_ = static_cast<std::byte*>(memory);
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace redline::backend
