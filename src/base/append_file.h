// A file that grows by whole records, for those who follow it while it is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace redline {

enum class Existing { refuse, append };

// One thread at a time. All failures are IoError naming the path and the reason.
class AppendFile {
 public:
  // A file that is already there is refused, or continued at its end.
  explicit AppendFile(std::filesystem::path path, Existing existing = Existing::refuse);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Hands one record to the system at once: a reader is never behind, and a killed process loses nothing.
  // When it cannot be written whole, the file is cut back to the record before.
  void append(std::string_view record);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t whole_bytes_ = 0;  // length of the file up to its last whole record
};

}  // namespace redline
