// Weight files in the safetensors format, which most tools read: named tensors and texts, and no code. A file
// is untrusted until its header is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/random_file.h"
#include "weights/safetensors_header.h"
#include "weights/tensor_file.h"

namespace redline::weights {

class SafetensorsReader final : public TensorFile {
 public:
  // Reads and checks the header. Throws IoError when the file cannot be read, DataError when it is not a
  // whole safetensors file; both name it.
  explicit SafetensorsReader(const std::filesystem::path& path);

  const std::filesystem::path& path() const override { return file_.path(); }
  void read(const Entry& entry, std::span<float> values) const override;
  // The bytes as they are in the file.
  void read_bytes(const Entry& entry, std::span<std::byte> bytes) const;

 private:
  RandomFile file_;
  std::uint64_t data_begin_ = 0;
};

// Writes one file, tensor after tensor, so that only one needs to be in memory. The file appears when it is
// committed, complete or not at all. One thread at a time; failures are IoError.
class SafetensorsWriter {
 public:
  // What was written, for those who keep checksums.
  struct Written {
    std::uint64_t bytes = 0;
    std::uint32_t crc32c = 0;
  };

  // The tensors in the order in which they will be written, by name, type and shape. Wider elements come
  // first, so that each tensor lies at a multiple of its element's size.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<Entry> entries, const Metadata& metadata,
                    Sync sync = Sync::yes);

  // The next tensor, rounded to its type when that is fp16 or bf16. Anything but fp32, fp16 or bf16, or
  // another number of elements than announced, is an InternalError.
  void write(std::span<const float> values);
  // The next tensor, as bytes of its type.
  void write_bytes(std::span<const std::byte> bytes);

  // After the last tensor: gives the file its name.
  Written commit();

 private:
  const Entry& next(std::size_t elements, std::size_t element_bytes);
  void put(std::span<const std::byte> bytes);

  AtomicFile file_;
  std::vector<Entry> entries_;
  std::size_t done_ = 0;  // tensors written
  Written written_;
};

}  // namespace redline::weights
