// Reading and writing whole files, with reusable memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/images/decode_memory.h"

namespace redline::data {

// Memory for one encoded image. Destroy it when the image is done, before the thread waits for anything: a
// large file counts towards the limit of decode_memory.h.
class FileBytes {
 public:
  FileBytes() = default;
  // Small files use scratch, which grows to their size and can be used again.
  explicit FileBytes(std::vector<std::uint8_t>& scratch) : small_(scratch) {}
  // give_up: as for MemoryLease; it must stay where it is.
  FileBytes(std::vector<std::uint8_t>& scratch, const std::function<bool()>& give_up)
      : small_(scratch), give_up_(&give_up) {}
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  // Uninitialised, until the next call. Waits for the memory of a large file.
  std::span<std::uint8_t> room(std::size_t bytes);

 private:
  std::vector<std::uint8_t> own_;
  std::vector<std::uint8_t>& small_ = own_;
  const std::function<bool()>* give_up_ = nullptr;
  MemoryLease lease_;
  std::unique_ptr<std::uint8_t[]> large_;
};

// The content of a file; it lives in memory. Any thread. Throws IoError with the reason, DataError when the
// file is larger than max_bytes; neither names the file, since callers know it.
std::span<const std::uint8_t> read_whole(const std::filesystem::path& path, std::int64_t max_bytes,
                                         FileBytes& memory);
std::string read_text(const std::filesystem::path& path, std::int64_t max_bytes);

// Whether the file exists and has this content. Throws IoError when it cannot be read.
bool has_content(const std::filesystem::path& path, std::span<const std::uint8_t> bytes);

// Makes a new file with this content. Throws IoError naming the path; part of the file may then be there, so
// write into a folder that is renamed or removed as a whole.
void write_whole(const std::filesystem::path& path, std::span<const std::uint8_t> bytes);

}  // namespace redline::data
