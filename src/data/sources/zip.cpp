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

namespace {

constexpr std::uint64_t kPiece = 1 << 20;

// Content that comes in pieces.
class Unpacking {
 public:
  Unpacking(z_stream& stream, bool deflated, std::span<std::uint8_t> content)
      : stream_(deflated ? &stream : nullptr), content_(content) {
    if (!deflated) return;
    inflateReset(&stream);
    stream.next_out = content.empty() ? &nothing_ : content.data();
    stream.avail_out = static_cast<uInt>(content.size());
  }

  void add(std::span<const std::uint8_t> piece, bool last) {
    if (!stream_) {
      std::ranges::copy(piece, content_.begin());
      content_ = content_.subspan(piece.size());
      return;
    }
    stream_->next_in = const_cast<Bytef*>(piece.data());
    stream_->avail_in = static_cast<uInt>(piece.size());
    const int code = ended_ ? Z_STREAM_END : inflate(stream_, last ? Z_FINISH : Z_NO_FLUSH);
    ended_ = code == Z_STREAM_END;
    const bool goes_on = code == Z_OK || code == Z_BUF_ERROR;
    if (last ? !ended_ || stream_->avail_out != 0 : !ended_ && !goes_on)
      throw DataError("zip: its compressed data is damaged");
  }

 private:
  z_stream* stream_;  // null: stored as it is
  std::span<std::uint8_t> content_;
  bool ended_ = false;
  std::uint8_t nothing_ = 0;  // zlib wants a place even for no bytes
};

}  // namespace

ZipReader::ZipReader() : state_(std::make_unique<State>()) {}
ZipReader::~ZipReader() = default;

std::span<const std::uint8_t> ZipReader::read(const RandomFile& file, const ZipMember& member,
                                              std::int64_t max_bytes, FileBytes& memory) {
  if (member.size > static_cast<std::uint64_t>(max_bytes) ||
      member.packed > static_cast<std::uint64_t>(max_bytes))
    throw DataError("{} bytes, more than the limit of {}", std::max(member.size, member.packed), max_bytes);
  const std::span<std::uint8_t> content = memory.room(member.size);
  // The local header repeats the name, and may have other extra fields: it is read together with the content,
  // or the first piece of it.
  std::uint64_t ready = std::min(kZipLocalHeader + member.name.size() + 64 + std::min(member.packed, kPiece),
                                 file.size() - member.header);
  if (packed_.size() < ready) packed_.resize(ready);
  file.read(member.header, {packed_.data(), ready});
  const std::uint64_t begin = content_begin({packed_.data(), ready});
  if (!member.deflated && member.packed != member.size) throw DataError("zip: a stored file with two sizes");
  Unpacking unpacking(state_->stream, member.deflated, content);
  std::span<const std::uint8_t> piece;
  if (begin < ready) piece = std::span(packed_).subspan(begin, std::min(ready - begin, member.packed));
  for (std::uint64_t done = 0;;) {
    done += piece.size();
    unpacking.add(piece, done == member.packed);
    if (done == member.packed) break;
    const std::uint64_t more = std::min(member.packed - done, kPiece);
    if (packed_.size() < more) packed_.resize(more);
    file.read(member.header + begin + done, {packed_.data(), more});
    piece = std::span(packed_).first(more);
  }
  if (crc32(0, content.data(), static_cast<uInt>(content.size())) != member.crc)
    throw DataError("zip: its checksum is wrong");
  return content;
}

}  // namespace redline::data
