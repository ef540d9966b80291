// Tar archives: finding the files in one, to read them in place, and writing them. Reads POSIX ustar and pax,
// and GNU's long names and large sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random_file.h"
#include "data/sources/pass_progress.h"

namespace redline::data {

struct TarMember {
  std::string name;
  std::uint64_t offset = 0;  // of its content, from where reading counts
  std::uint64_t size = 0;

  bool operator==(const TarMember&) const = default;
};

// Fills a buffer from an offset; throws when it cannot.
using ReadAt = std::function<void(std::uint64_t offset, std::span<std::uint8_t> into)>;

// The regular files of the archive in [begin, end), in their order. Reads only the headers. Folders are
// skipped. Throws DataError, with the byte, for a damaged header, a truncated archive, a link or device, and
// a name that is absolute or climbs with "..".
std::vector<TarMember> list_tar(const ReadAt& read, std::uint64_t begin, std::uint64_t end);
// The same in a file, with progress; errors name the archive, `what`, and say what to do.
std::vector<TarMember> list_tar(const RandomFile& file, const std::string& what, std::uint64_t begin,
                                std::uint64_t end, PassProgress& progress);

// The header of a regular file: the caller writes header, content and padding. Throws UsageError for a name
// over 100 bytes. The same arguments give the same bytes: owner, mode and time are fixed.
std::vector<std::uint8_t> tar_header(std::string_view name, std::uint64_t size);
std::size_t tar_padding(std::uint64_t size);  // zeros after the content
constexpr std::size_t kTarEnd = 1024;         // zeros at the end of an archive

}  // namespace redline::data
