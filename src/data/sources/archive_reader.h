// Archives that must be read from the front (a compressed tar, a zip): a C++ wrapper of libarchive.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/zip_directory.h"

namespace redline::data {

using redline::require_safe_name;

// Walks the regular files of an archive. One thread. All failures name the archive: IoError when it cannot be
// opened, DataError when it is damaged, cut off, or has a name that is absolute or climbs with "..".
class ArchiveReader {
 public:
  explicit ArchiveReader(const std::filesystem::path& path);
  ~ArchiveReader();
  ArchiveReader(const ArchiveReader&) = delete;
  ArchiveReader& operator=(const ArchiveReader&) = delete;

  // Advances to the next file; false at the end. Folders, links and devices are skipped.
  bool next();

  const std::string& name() const { return name_; }

  // The content of the current file; once. DataError if it has more than max_bytes, whatever its header says.
  std::vector<std::uint8_t> read(std::size_t max_bytes);

 private:
  struct State;  // libarchive's handle
  std::unique_ptr<State> state_;
  std::filesystem::path path_;
  std::string name_;
};

}  // namespace redline::data
