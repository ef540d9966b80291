// A file that grows by whole records, so that others can follow it while it is written.
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
  // An existing file is refused, or continued at its end.
  explicit AppendFile(std::filesystem::path path, Existing existing = Existing::refuse);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Hands one record to the system at once: a reader is never behind, and a killed process loses nothing. If
  // it cannot be written (a full disk), a warning is logged, and the record is kept in memory and written as
  // soon as possible; the file always ends with a whole record. Throws once 64 MiB are waiting.
  void append(std::string_view record);
  // Tries to write the waiting records; true if none is left.
  bool flush();
  // The same, but throws if some are left.
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
