// Memory for assembling batches: allocated once, aligned, and from an allocator that a GPU build can replace
// with one that pins pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/host_allocator.h"

namespace redline::data {

using redline::HostAllocator;

// Owns one allocation; movable. The memory starts as zeros.
class HostBuffer {
 public:
  HostBuffer() = default;
  // Throws UnavailableError when there is no memory, naming the size.
  HostBuffer(std::size_t bytes, const HostAllocator& allocator);
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer();

  std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
  std::function<void(void*, std::size_t)> release_;
};

// The memory of one batch: images [N, H, W, 3], labels [N], and for mixed images the other labels [N] and the
// weights of labels [N], in one allocation, so that all of it is pinned together.
class BatchMemory {
 public:
  BatchMemory() = default;
  BatchMemory(int rows, int image_size, const HostAllocator& allocator);

  std::uint8_t* images() const { return buffer_.data(); }
  std::uint8_t* image(int row) const { return buffer_.data() + image_bytes_ * static_cast<std::size_t>(row); }
  std::int32_t* labels() const { return reinterpret_cast<std::int32_t*>(buffer_.data() + labels_at_); }
  std::int32_t* other_labels() const { return labels() + rows_; }
  float* label_weights() const { return reinterpret_cast<float*>(other_labels() + rows_); }

 private:
  std::size_t rows_ = 0;
  std::size_t image_bytes_ = 0;
  std::size_t labels_at_ = 0;
  HostBuffer buffer_;
};

}  // namespace redline::data
