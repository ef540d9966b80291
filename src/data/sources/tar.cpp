#include "data/sources/tar.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "data/sources/archive_reader.h"

namespace redline::data {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::uint64_t kMaxMetadata = 1
                                       << 20;  // a long name or pax header; real ones take some hundred bytes

using TarHeader = std::array<std::uint8_t, kBlock>;

struct Field {
  std::size_t at, size;
};
constexpr Field kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kMagic{257, 5}, kPrefix{345, 155};
constexpr std::size_t kType = 156;

std::string_view text(const TarHeader& header, Field field) {
  const char* begin = reinterpret_cast<const char*>(header.data()) + field.at;
  return {begin, ::strnlen(begin, field.size)};
}

// Octal digits, or GNU's binary form with the top bit of the first byte set.
std::uint64_t number(const TarHeader& header, Field field, std::uint64_t offset) {
  const std::uint8_t* bytes = header.data() + field.at;
  std::uint64_t value = 0;
  if (bytes[0] == 0x80) {
    for (std::size_t i = field.size - 8; i < field.size; ++i) value = value << 8 | bytes[i];
    return value;
  }
  std::size_t i = 0;
  while (i < field.size && bytes[i] == ' ') ++i;
  bool any = false;
  for (; i < field.size && bytes[i] >= '0' && bytes[i] <= '7'; ++i, any = true)
    value = value * 8 + (bytes[i] - '0');
  if (!any || (i < field.size && bytes[i] != '\0' && bytes[i] != ' '))
    throw DataError("tar: a damaged number in the header at byte {}", offset);
  return value;
}

bool is_zero(const TarHeader& header) {
  for (const std::uint8_t byte : header)
    if (byte) return false;
  return true;
}

void require_checksum(const TarHeader& header, std::uint64_t offset) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kBlock; ++i)
    sum += i >= kChecksum.at && i < kChecksum.at + kChecksum.size ? std::uint8_t{' '} : header[i];
  if (sum != number(header, kChecksum, offset)) throw DataError("tar: a damaged header at byte {}", offset);
}

// What pax headers say about the next member: "<length> key=value\n" each.
void read_pax(const std::string& content, std::uint64_t offset, std::string& name, std::uint64_t& size,
              bool& has_size) {
  for (std::size_t at = 0; at < content.size();) {
    std::size_t length = 0;
    const char* begin = content.data() + at;
    const char* end = content.data() + content.size();
    const auto [digits, error] = std::from_chars(begin, end, length);
    const std::size_t used = static_cast<std::size_t>(digits - begin);
    if (error != std::errc{} || digits == end || *digits != ' ' || length < used + 3 ||
        length > content.size() - at)
      throw DataError("tar: a damaged extended header at byte {}", offset);
    const std::string_view record(digits + 1, length - used - 2);  // without the newline
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos)
      throw DataError("tar: a damaged extended header at byte {}", offset);
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") name = value;
    if (key == "size") {
      const auto parsed = std::from_chars(value.data(), value.data() + value.size(), size);
      if (parsed.ec != std::errc{} || parsed.ptr != value.data() + value.size())
        throw DataError("tar: a damaged size in the extended header at byte {}", offset);
      has_size = true;
    }
    at += length;
  }
}

std::uint64_t padded(std::uint64_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

}  // namespace

std::vector<TarMember> list_tar(const ReadAt& read, std::uint64_t begin, std::uint64_t end) {
  std::vector<TarMember> members;
  std::string long_name;
  std::uint64_t long_size = 0;
  bool has_long_size = false;
  std::uint64_t at = begin;
  while (at < end) {
    if (end - at < kBlock) throw DataError("tar: the archive is cut off at byte {}", end);
    TarHeader header;
    read(at, header);
    if (is_zero(header)) return members;
    require_checksum(header, at);
    const std::uint64_t content = at + kBlock;
    const char type = static_cast<char>(header[kType]);
    std::uint64_t size = number(header, kSize, at);
    if (has_long_size && type != 'L' && type != 'x' && type != 'g') size = long_size;
    if (size > end - content)
      throw DataError("tar: the archive is cut off: a member at byte {} should have {} bytes", at, size);
    if (type == 'L' || type == 'x' || type == 'g') {
      if (size > kMaxMetadata) throw DataError("tar: an extended header of {} bytes at byte {}", size, at);
      std::string metadata(size, '\0');
      read(content, {reinterpret_cast<std::uint8_t*>(metadata.data()), metadata.size()});
      if (type == 'L') long_name = metadata.substr(0, metadata.find('\0'));
      if (type == 'x') read_pax(metadata, at, long_name, long_size, has_long_size);
    } else if (type == '0' || type == '\0' || type == '7') {
      TarMember member;
      if (!long_name.empty()) {
        member.name = long_name;
      } else {
        const bool ustar = text(header, kMagic) == "ustar";
        const std::string_view prefix = ustar ? text(header, kPrefix) : std::string_view{};
        member.name = prefix.empty() ? std::string(text(header, kName))
                                     : std::string(prefix) + "/" + std::string(text(header, kName));
      }
      try {
        require_safe_name(member.name);
      } catch (const DataError& error) {
        throw DataError("tar: {} (at byte {})", error.what(), at);
      }
      member.offset = content;
      member.size = size;
      members.push_back(std::move(member));
    } else if (type != '5') {
      throw DataError(
          "tar: a link, device or unknown member '{}' at byte {}; only files and folders are read",
          text(header, kName), at);
    }
    if (type != 'L' && type != 'x') {
      long_name.clear();
      has_long_size = false;
    }
    at = content + std::min(padded(size), end - content);
  }
  // Every writer ends an archive with zeros; one without them was cut off between two members.
  throw DataError("tar: the archive is cut off at byte {}: its end mark is missing", end);
}

std::vector<TarMember> list_tar(const RandomFile& file, const std::string& what, std::uint64_t begin,
                                std::uint64_t end, PassProgress& progress) {
  std::uint64_t last = begin;
  try {
    return list_tar(
        [&](std::uint64_t offset, std::span<std::uint8_t> into) {
          progress.add(offset - std::exchange(last, offset));
          file.read(offset, into);
        },
        begin, end);
  } catch (const DataError& error) {
    throw DataError("{}: {}; fetch it again, or compare its checksum with the publisher's", what,
                    error.what());
  }
}

std::vector<std::uint8_t> tar_header(std::string_view name, std::uint64_t size) {
  if (name.empty() || name.size() > kName.size) throw UsageError("'{}' is too long a name for a tar", name);
  std::vector<std::uint8_t> header(kBlock, 0);
  char* out = reinterpret_cast<char*>(header.data());
  std::memcpy(out, name.data(), name.size());
  std::snprintf(out + 100, 8, "%07o", 0644);
  std::snprintf(out + 108, 8, "%07o", 0);
  std::snprintf(out + 116, 8, "%07o", 0);
  if (size < (std::uint64_t{1} << 33)) {
    std::snprintf(out + kSize.at, 12, "%011llo", static_cast<unsigned long long>(size));
  } else {
    header[kSize.at] = 0x80;
    for (std::size_t i = 0; i < 8; ++i)
      header[kSize.at + 11 - i] = static_cast<std::uint8_t>(size >> (8 * i));
  }
  std::snprintf(out + 136, 12, "%011o", 0);
  out[kType] = '0';
  std::memcpy(out + kMagic.at,
              "ustar\0"
              "00",
              8);
  std::memset(out + kChecksum.at, ' ', kChecksum.size);
  unsigned sum = 0;
  for (const std::uint8_t byte : header) sum += byte;
  std::snprintf(out + kChecksum.at, 7, "%06o", sum);
  return header;
}

std::size_t tar_padding(std::uint64_t size) { return static_cast<std::size_t>(padded(size) - size); }

}  // namespace redline::data
