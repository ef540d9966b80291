#include "data/host_memory.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/error.h"

namespace redline::data {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void* allocate_aligned(std::size_t bytes) {
  void* memory = std::aligned_alloc(kAlignment, aligned(bytes));
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

HostBuffer::HostBuffer(std::size_t bytes, const HostAllocator& allocator) : size_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  try {
    memory = allocator.allocate ? allocator.allocate(bytes) : allocate_aligned(bytes);
  } catch (const std::bad_alloc&) {
    throw UnavailableError("no memory for a batch of {:.1f} MiB; use a smaller --batch-size",
                           static_cast<double>(bytes) / (1 << 20));
  }
  release_ = allocator.allocate ? allocator.release : [](void* p, std::size_t) { std::free(p); };
  data_ = static_cast<std::uint8_t*>(memory);
  std::memset(data_, 0, bytes);
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      release_(std::move(other.release_)) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(release_, other.release_);
  return *this;
}

HostBuffer::~HostBuffer() {
  if (data_ && release_) release_(data_, size_);
}

BatchMemory::BatchMemory(int rows, int image_size, const HostAllocator& allocator)
    : rows_(static_cast<std::size_t>(rows)),
      image_bytes_(static_cast<std::size_t>(image_size) * static_cast<std::size_t>(image_size) * 3),
      labels_at_(aligned(image_bytes_ * rows_)),
      buffer_(labels_at_ + rows_ * (2 * sizeof(std::int32_t) + sizeof(float)), allocator) {}

}  // namespace redline::data
