// Zip archives: where each file lies in one, so that it can be read in place, by any thread. Reads stored and
// deflated members, and zip64.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/random_file.h"

namespace redline::data {

struct ZipMember {
  std::string name;
  std::uint64_t header = 0;  // where its local header lies
  std::uint64_t packed = 0;  // bytes in the archive
  std::uint64_t size = 0;    // bytes when unpacked
  std::uint32_t crc = 0;
  bool deflated = false;

  bool operator==(const ZipMember&) const = default;
};

// The files in the archive's directory, in its order; folders are passed over. Reads the directory alone.
// Throws DataError: not a zip or cut off, a damaged directory, an encrypted member, another compression, a
// name that is absolute or climbs with "..", a name that comes twice, and members that share bytes (which
// would let a small file unpack to a vast one).
std::vector<ZipMember> list_zip(const RandomFile& file);

// One thread's buffers; used again from member to member.
class ZipReader {
 public:
  ZipReader();
  ~ZipReader();
  ZipReader(const ZipReader&) = delete;
  ZipReader& operator=(const ZipReader&) = delete;

  // The content of a member, in scratch. Throws DataError when it has more than max_bytes, or is not what the
  // directory promised (size, CRC-32).
  std::span<const std::uint8_t> read(const RandomFile& file, const ZipMember& member, std::int64_t max_bytes,
                                     std::vector<std::uint8_t>& scratch);

 private:
  struct State;  // zlib's
  std::vector<std::uint8_t> packed_;
  std::unique_ptr<State> state_;
};

}  // namespace redline::data
