// A file that any thread can read at any offset.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace redline {

// Owns an open file; movable. Reading is safe from any thread.
class RandomFile {
 public:
  // Throws IoError naming the path.
  explicit RandomFile(std::filesystem::path path);
  ~RandomFile();
  RandomFile(RandomFile&& other) noexcept;
  RandomFile& operator=(RandomFile&&) = delete;
  RandomFile(const RandomFile&) = delete;
  RandomFile& operator=(const RandomFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }               // when it was opened
  std::int64_t modified_ns() const { return modified_ns_; }  // since 1970, when it was opened

  // Fills `into` from offset. Throws DataError when the file ends before that, IoError when reading fails;
  // neither names the file.
  void read(std::uint64_t offset, std::span<std::uint8_t> into) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  std::int64_t modified_ns_ = 0;
};

}  // namespace redline
