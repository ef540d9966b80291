// Batches of JPEGs decoded by the GPU's own engines, then cropped and resized by one kernel, on a side stream
// while training computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/cuda/device.h"
#include "backend/image_decoder.h"

namespace redline::backend::cuda {

class CudaImages final : public DeviceImages {
 public:
  CudaImages(int rows, int size);

  int rows() const override { return rows_; }
  int size() const override { return size_; }
  void read(int row, std::span<std::uint8_t> pixels) const override;

  static std::size_t bytes(int rows, int size) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(size) * static_cast<std::size_t>(size) *
           3;
  }
  std::size_t row_bytes() const { return bytes(1, size_); }
  std::byte* row(int index) const { return memory_.data() + row_bytes() * static_cast<std::size_t>(index); }

  // Queues a copy of all rows on a stream, with an event behind it.
  void copy_to(std::byte* target, std::size_t bytes, cudaStream_t stream) const;
  // Makes a stream wait until the last copy is done.
  void wait_until_copied(cudaStream_t stream) const;

 private:
  int rows_, size_;
  DeviceMemory memory_;
  Event copied_ = make_event(false);
};

// Uses the current device. Throws UnavailableError if nvJPEG or the decoding engines are missing.
std::shared_ptr<ImageDecoder> make_jpeg_decoder();

}  // namespace redline::backend::cuda
