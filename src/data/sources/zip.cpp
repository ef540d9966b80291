#include "data/sources/zip.h"

#include <algorithm>
#include <memory>

#include <zlib.h>

#include "base/error.h"

namespace redline::data {

struct ZipReader::State {
  z_stream stream{};

  State() { check(inflateInit2(&stream, -MAX_WBITS) == Z_OK, "zlib does not start"); }
  ~State() { inflateEnd(&stream); }
};

ZipReader::ZipReader() : state_(std::make_unique<State>()) {}
ZipReader::~ZipReader() = default;

std::span<const std::uint8_t> ZipReader::read(const RandomFile& file, const ZipMember& member,
                                              std::int64_t max_bytes, std::vector<std::uint8_t>& scratch) {
  if (member.size > static_cast<std::uint64_t>(max_bytes) ||
      member.packed > static_cast<std::uint64_t>(max_bytes))
    throw DataError("{} bytes, more than the limit of {}", std::max(member.size, member.packed), max_bytes);
  // The local header repeats the name, and may have other extra fields: read it together with the content.
  const std::uint64_t guess =
      std::min(kZipLocalHeader + member.name.size() + 64 + member.packed, file.size() - member.header);
  if (packed_.size() < guess) packed_.resize(guess);
  file.read(member.header, {packed_.data(), guess});
  const std::uint64_t begin = content_begin({packed_.data(), guess});
  if (begin + member.packed > guess) {
    if (packed_.size() < begin + member.packed) packed_.resize(begin + member.packed);
    file.read(member.header, {packed_.data(), begin + member.packed});
  }
  if (scratch.size() < member.size) scratch.resize(member.size);
  std::uint8_t* packed = packed_.data() + begin;
  if (!member.deflated) {
    if (member.packed != member.size) throw DataError("zip: a stored file with two sizes");
    std::copy(packed, packed + member.size, scratch.begin());
  } else {
    z_stream& stream = state_->stream;
    std::uint8_t nothing = 0;  // zlib wants a place even for no bytes
    inflateReset(&stream);
    stream.next_in = packed;
    stream.avail_in = static_cast<uInt>(member.packed);
    stream.next_out = member.size ? scratch.data() : &nothing;
    stream.avail_out = static_cast<uInt>(member.size);
    if (inflate(&stream, Z_FINISH) != Z_STREAM_END || stream.avail_out != 0)
      throw DataError("zip: its compressed data is damaged");
  }
  if (crc32(0, scratch.data(), static_cast<uInt>(member.size)) != member.crc)
    throw DataError("zip: its checksum is wrong");
  return {scratch.data(), member.size};
}

}  // namespace redline::data
