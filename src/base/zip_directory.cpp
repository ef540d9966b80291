#include "base/zip_directory.h"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_set>

#include "base/error.h"

namespace redline {
namespace {

constexpr std::uint64_t kEndSize = 22, kEnd64Size = 56, kLocatorSize = 20, kEntrySize = 46;
constexpr std::uint32_t kEndMark = 0x06054b50, kEnd64Mark = 0x06064b50, kLocatorMark = 0x07064b50,
                        kEntryMark = 0x02014b50, kLocalMark = 0x04034b50;
constexpr std::uint64_t kMaxDirectory = std::uint64_t{1} << 30;
constexpr std::uint32_t kIn64 = 0xffffffff;  // the value is in the zip64 part

std::uint64_t number(const std::uint8_t* at, int bytes) {
  std::uint64_t value = 0;
  for (int i = bytes; i-- > 0;) value = value << 8 | at[i];
  return value;
}

std::vector<std::uint8_t> bytes_at(const RandomFile& file, std::uint64_t offset, std::uint64_t size) {
  if (offset > file.size() || size > file.size() - offset) throw DataError("zip: the archive is cut off");
  std::vector<std::uint8_t> bytes(size);
  file.read(offset, bytes);
  return bytes;
}

struct Directory {
  std::uint64_t offset = 0, size = 0, entries = 0;
};

Directory find_directory(const RandomFile& file) {
  if (file.size() < kEndSize) throw DataError("zip: not a zip archive");
  // The end record is the last thing in the file, but for a comment of up to 64 KiB.
  const std::uint64_t tail = std::min<std::uint64_t>(file.size(), kEndSize + 0xffff);
  const std::vector<std::uint8_t> bytes = bytes_at(file, file.size() - tail, tail);
  for (std::uint64_t i = tail - kEndSize + 1; i-- > 0;) {
    const std::uint8_t* end = bytes.data() + i;
    if (number(end, 4) != kEndMark || number(end + 20, 2) != tail - i - kEndSize) continue;
    Directory found{number(end + 16, 4), number(end + 12, 4), number(end + 10, 2)};
    if (found.offset != kIn64 && found.size != kIn64 && found.entries != 0xffff) return found;
    const std::uint64_t at = file.size() - tail + i;
    if (at < kLocatorSize) return found;
    const std::vector<std::uint8_t> locator = bytes_at(file, at - kLocatorSize, kLocatorSize);
    if (number(locator.data(), 4) != kLocatorMark) return found;
    const std::vector<std::uint8_t> end64 = bytes_at(file, number(locator.data() + 8, 8), kEnd64Size);
    if (number(end64.data(), 4) != kEnd64Mark) throw DataError("zip: a damaged directory");
    return {number(end64.data() + 48, 8), number(end64.data() + 40, 8), number(end64.data() + 32, 8)};
  }
  throw DataError("zip: there is no directory at the end: it is not a zip archive, or is cut off");
}

// Sizes and offset of an entry that do not fit into 32 bits are in an extra field, in this order.
void read_zip64(std::span<const std::uint8_t> extra, ZipMember& member) {
  while (extra.size() >= 4) {
    const std::uint64_t id = number(extra.data(), 2), size = number(extra.data() + 2, 2);
    if (size > extra.size() - 4) break;
    std::span<const std::uint8_t> body = extra.subspan(4, size);
    extra = extra.subspan(4 + size);
    if (id != 1) continue;
    for (std::uint64_t* value : {&member.size, &member.packed, &member.header}) {
      if (*value != kIn64) continue;
      if (body.size() < 8) throw DataError("zip: a damaged entry for {}", member.name);
      *value = number(body.data(), 8);
      body = body.subspan(8);
    }
    return;
  }
}

// Members must not overlap: entries that point at the same bytes would let a small file unpack to any size.
void check_places(const std::vector<ZipMember>& members, std::uint64_t end) {
  std::vector<const ZipMember*> order;
  for (const ZipMember& member : members) order.push_back(&member);
  std::sort(order.begin(), order.end(),
            [](const ZipMember* a, const ZipMember* b) { return a->header < b->header; });
  for (std::size_t i = 0; i < order.size(); ++i) {
    const ZipMember& one = *order[i];
    const std::uint64_t limit = i + 1 < order.size() ? order[i + 1]->header : end;
    if (one.header > limit || limit - one.header < kZipLocalHeader ||
        one.packed > limit - one.header - kZipLocalHeader)
      throw DataError("zip: {} does not fit before what follows it: the archive is damaged or hostile",
                      one.name);
  }
}

}  // namespace

bool is_safe_name(const std::string& name) {
  if (name.empty() || name.front() == '/' || name.find('\0') != name.npos) return false;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t slash = std::min(name.find('/', at), name.size());
    if (name.compare(at, slash - at, "..") == 0) return false;
    at = slash + 1;
  }
  return true;
}

void require_safe_name(const std::string& name) {
  if (!is_safe_name(name)) throw DataError("a member named '{}'; names must stay inside the archive", name);
}

std::vector<ZipMember> list_zip(const RandomFile& file) {
  const Directory directory = find_directory(file);
  if (directory.size > kMaxDirectory) throw DataError("zip: a directory of {} bytes", directory.size);
  const std::vector<std::uint8_t> bytes = bytes_at(file, directory.offset, directory.size);
  std::vector<ZipMember> members;
  std::unordered_set<std::string> names;
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    const std::uint8_t* entry = bytes.data() + at;
    if (bytes.size() - at < kEntrySize || number(entry, 4) != kEntryMark)
      throw DataError("zip: a damaged directory at entry {}", i + 1);
    const std::uint64_t name = number(entry + 28, 2), extra = number(entry + 30, 2),
                        comment = number(entry + 32, 2);
    if (bytes.size() - at - kEntrySize < name + extra + comment)
      throw DataError("zip: a damaged directory at entry {}", i + 1);
    ZipMember member;
    member.name.assign(reinterpret_cast<const char*>(entry) + kEntrySize, name);
    member.crc = static_cast<std::uint32_t>(number(entry + 16, 4));
    member.packed = number(entry + 20, 4);
    member.size = number(entry + 24, 4);
    member.header = number(entry + 42, 4);
    read_zip64({entry + kEntrySize + name, extra}, member);
    at += kEntrySize + name + extra + comment;
    if (member.name.ends_with('/')) continue;
    require_safe_name(member.name);
    if (number(entry + 8, 2) & 1) throw DataError("zip: {} is encrypted", member.name);
    const std::uint64_t method = number(entry + 10, 2);
    if (method != 0 && method != 8)
      throw DataError("zip: {} is compressed by method {}; only deflate is read", member.name, method);
    member.deflated = method == 8;
    if (!names.insert(member.name).second) throw DataError("zip: it holds {} twice", member.name);
    members.push_back(std::move(member));
  }
  check_places(members, directory.offset);
  return members;
}

std::uint64_t content_begin(std::span<const std::uint8_t> header) {
  if (header.size() < kZipLocalHeader || number(header.data(), 4) != kLocalMark)
    throw DataError("zip: a member's header is damaged");
  return kZipLocalHeader + number(header.data() + 26, 2) + number(header.data() + 28, 2);
}

std::uint64_t content_offset(const RandomFile& file, const ZipMember& member) {
  std::array<std::uint8_t, kZipLocalHeader> header{};
  if (member.header > file.size() || file.size() - member.header < header.size())
    throw DataError("zip: {} lies beyond the end of the file", member.name);
  file.read(member.header, header);
  const std::uint64_t begin = content_begin(header);
  const std::uint64_t room = file.size() - member.header;
  if (begin > room || member.packed > room - begin)
    throw DataError("zip: {} lies beyond the end of the file", member.name);
  return member.header + begin;
}

}  // namespace redline
