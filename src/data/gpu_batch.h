// The part of a batch that a GPU decodes: the files and what to show of each, collected by the loader's
// threads, and the images on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/image_decoder.h"
#include "data/host_memory.h"
#include "data/images/augment.h"

namespace redline::data {

class GpuBatch {
 public:
  // Larger files are left to the CPU: memory for a file of this size is reserved for every row.
  static constexpr std::size_t kMostBytes = 512 << 10;

  GpuBatch(std::shared_ptr<backend::ImageDecoder> decoder, int rows, int size, Interpolation filter);

  // Copies the file of a row; false if the GPU cannot decode it. Safe from any thread, if each row is used by
  // one thread.
  bool add(int row, std::span<const std::uint8_t> bytes, const Transform::Screened& screened);

  // Makes the images of all rows; rows that were not added are copied from host memory. Returns the added
  // rows that the GPU could not decode.
  std::vector<int> decode(const BatchMemory& host);
  // Copies rows again from host memory.
  void upload(std::span<const int> rows, const BatchMemory& host);
  // Forgets what was added, for the next batch.
  void clear();

  int added() const;
  const backend::DeviceImages& images() const { return *images_; }

 private:
  struct Row {
    bool added = false;
    std::size_t bytes = 0;
    Transform::Screened screened;
  };
  std::uint8_t* file(int row) const { return files_.get() + kMostBytes * static_cast<std::size_t>(row); }

  std::shared_ptr<backend::ImageDecoder> decoder_;
  Interpolation filter_;
  std::vector<Row> rows_;
  std::unique_ptr<std::uint8_t[]> files_;  // kMostBytes a row; pages are used once a file needs them
  std::unique_ptr<backend::DeviceImages> images_;
};

}  // namespace redline::data
