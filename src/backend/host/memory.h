// Memory of a backend that runs on the host: page-aligned, zero until touched, in huge pages where the system
// gives them. Move-only.
#pragma once

#include <cstddef>
#include <utility>

namespace redline::backend {

class HostMemory {
 public:
  HostMemory() = default;
  // Throws UnavailableError when the system refuses.
  explicit HostMemory(std::size_t bytes);
  HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }
  HostMemory& operator=(HostMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HostMemory();

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace redline::backend
