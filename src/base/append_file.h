// A file that grows by whole records, for those who follow it while it is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/clock.h"

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
  // When the file system refuses it (a full disk), a warning is logged, and it is kept in memory and written
  // as soon as that works again; the file ends with a whole record at any time. Throws once 64 MiB wait.
  void append(std::string_view record);
  // Tries to write what waits; whether nothing waits after it.
  bool flush();
  // The same, and throws when something is left.
  void finish();

  const std::filesystem::path& path() const { return path_; }
  bool empty() const { return whole_bytes_ == 0; }  // nothing is in the file

 private:
  [[noreturn]] void refuse() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t whole_bytes_ = 0;  // length of the file up to its last whole record
  std::string waiting_;           // records that are not in the file yet
  int error_ = 0;                 // of the last write; 0 when it went well
  Stopwatch since_tried_;
};

}  // namespace redline
