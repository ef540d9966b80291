// The directory of a zip archive: its members and where they are. Reads zip64.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/random_file.h"

namespace redline {

struct ZipMember {
  std::string name;
  std::uint64_t header = 0;  // where its local header lies
  std::uint64_t packed = 0;  // bytes in the archive
  std::uint64_t size = 0;    // bytes when unpacked
  std::uint32_t crc = 0;
  bool deflated = false;

  bool operator==(const ZipMember&) const = default;
};

// Whether a member's name stays inside the archive: it is not empty, not absolute, does not climb with ".."
// and has no zero in it.
bool is_safe_name(const std::string& name);
// Throws DataError if it does not.
void require_safe_name(const std::string& name);

// The files in the archive's directory, in its order; folders are skipped. Reads only the directory. Throws
// DataError: not a zip or cut off, a damaged directory, an encrypted member, another compression, a name that
// is absolute or climbs with "..", a name that comes twice, and members that share bytes (which would let a
// small file unpack to a vast one).
std::vector<ZipMember> list_zip(const RandomFile& file);

inline constexpr std::uint64_t kZipLocalHeader =
    30;  // bytes of a local header, before its name and extra fields

// The offset of a member's content from the start of its local header, whose first bytes are given. Throws
// DataError if they are not a local header.
std::uint64_t content_begin(std::span<const std::uint8_t> header);

// Where the content of a member begins in the file. Throws DataError when its local header is damaged or its
// content would lie beyond the end of the file.
std::uint64_t content_offset(const RandomFile& file, const ZipMember& member);

}  // namespace redline
