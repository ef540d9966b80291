// Reads a file of named tensors in any supported format: safetensors (safetensors.h) or PyTorch's
// (pytorch.h).
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weights/safetensors_header.h"

namespace redline::weights {

inline constexpr std::size_t kChunk = 64 * 1024;  // elements converted at a time

// An open file. Reading is safe from any thread.
class TensorFile {
 public:
  virtual ~TensorFile() = default;

  virtual const std::filesystem::path& path() const = 0;
  // Names are without the prefixes of wrappers: "module." of DataParallel, "_orig_mod." of torch.compile,
  // "model.".
  const std::vector<Entry>& entries() const { return entries_; }
  const Metadata& metadata() const { return metadata_; }
  const Entry* find(const std::string& name) const;  // null when there is none

  // The values of a floating-point tensor as fp32; `values` has as many as it has elements. Throws DataError
  // for a tensor of integers, IoError when reading fails.
  virtual void read(const Entry& entry, std::span<float> values) const = 0;

 protected:
  TensorFile() = default;
  TensorFile(TensorFile&&) = default;

  void take(std::vector<Entry> entries, Metadata metadata);
  // Reads elements of a type as fp32. `fill` gives bytes from an offset on.
  using Fill = std::function<void(std::size_t at, std::span<std::byte> bytes)>;
  void read_floats(const Entry& entry, std::span<float> values, const Fill& fill) const;

 private:
  std::vector<Entry> entries_;
  Metadata metadata_;
};

// Opens a file in the format that its first bytes show. Throws IoError if it cannot be read, DataError if it
// is neither format or damaged; both name it.
std::unique_ptr<TensorFile> open_tensors(const std::filesystem::path& path);

}  // namespace redline::weights
