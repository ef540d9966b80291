// Files of a zip archive, read in place, by any thread: stored and deflated members, and zip64.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/random_file.h"
#include "base/zip_directory.h"
#include "data/file.h"

namespace redline::data {

using redline::list_zip;
using redline::ZipMember;

// One thread's buffers; used again from member to member.
class ZipReader {
 public:
  ZipReader();
  ~ZipReader();
  ZipReader(const ZipReader&) = delete;
  ZipReader& operator=(const ZipReader&) = delete;

  // The content of a member, in memory. Throws DataError when it has more than max_bytes, or does not match
  // the directory (size, CRC-32).
  std::span<const std::uint8_t> read(const RandomFile& file, const ZipMember& member, std::int64_t max_bytes,
                                     FileBytes& memory);

 private:
  struct State;  // zlib's
  std::vector<std::uint8_t> packed_;
  std::unique_ptr<State> state_;
};

}  // namespace redline::data
