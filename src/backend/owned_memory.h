// Bytes of one kind of memory and their owner.
#pragma once

#include <cstddef>
#include <utility>

namespace redline::backend {

// Move-only. `Space` allocates and releases the memory:
//   static std::byte* allocate(std::size_t bytes);  // more than 0; throws if there is not enough
//   static void release(std::byte* memory, std::size_t bytes) noexcept;
template <typename Space>
class OwnedMemory {
 public:
  OwnedMemory() = default;
  explicit OwnedMemory(std::size_t bytes)
      : data_(bytes == 0 ? nullptr : Space::allocate(bytes)), bytes_(bytes) {}
  OwnedMemory(OwnedMemory&& other) noexcept { *this = std::move(other); }
  OwnedMemory& operator=(OwnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~OwnedMemory() {
    if (data_ != nullptr) Space::release(data_, bytes_);
  }

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace redline::backend
