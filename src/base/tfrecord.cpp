#include "base/tfrecord.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/error.h"

namespace redline {
namespace {

template <typename Word>
Word load_little(const std::uint8_t* bytes) {
  Word value = 0;
  for (std::size_t i = sizeof(Word); i-- > 0;) value = static_cast<Word>(value << 8 | bytes[i]);
  return value;
}

template <typename Word>
void append_little(std::vector<std::uint8_t>& out, Word value) {
  for (std::size_t i = 0; i < sizeof(Word); ++i) out.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

// The data's length from the 12 bytes before it; false when their CRC is wrong.
bool parse_header(std::span<const std::uint8_t> header, std::uint64_t& length) {
  length = load_little<std::uint64_t>(header.data());
  return load_little<std::uint32_t>(header.data() + 8) == masked_crc32c(header.first(8));
}

}  // namespace

RecordList list_records(const RandomFile& file) {
  RecordList list;
  std::uint64_t at = 0;
  while (at < file.size()) {
    std::uint8_t header[kRecordHeader];
    const std::uint64_t left = file.size() - at;
    if (left < kRecordOverhead) {
      list.damage = fmt::format("cut off inside the record at byte {}", at);
      return list;
    }
    file.read(at, header);
    std::uint64_t length = 0;
    if (!parse_header(header, length)) {
      list.damage = fmt::format("a damaged length at byte {}", at);
      return list;
    }
    if (length > left - kRecordOverhead) {
      list.damage = fmt::format("cut off inside the record at byte {}", at);
      return list;
    }
    list.frames.push_back({at, length + kRecordOverhead});
    at += length + kRecordOverhead;
  }
  return list;
}

std::string scan_records(
    const RandomFile& file, std::uint64_t max_bytes,
    const std::function<void(const RecordFrame&, std::optional<std::span<const std::uint8_t>>)>& visit) {
  constexpr std::uint64_t kPiece = 4 << 20;
  std::vector<std::uint8_t> window;
  std::uint64_t begin = 0, end = 0;  // of the file, that the window holds
  const auto at = [&](std::uint64_t offset, std::uint64_t size) {
    if (offset < begin || offset + size > end) {
      begin = offset;
      end = std::min(file.size(), offset + std::max(size, kPiece));
      if (window.size() < end - begin) window.resize(end - begin);
      file.read(begin, {window.data(), end - begin});
    }
    return std::span<const std::uint8_t>(window).subspan(offset - begin, size);
  };
  for (std::uint64_t offset = 0; offset < file.size();) {
    const std::uint64_t left = file.size() - offset;
    std::uint64_t length = 0;
    if (left < kRecordOverhead) return fmt::format("cut off inside the record at byte {}", offset);
    if (!parse_header(at(offset, kRecordHeader), length))
      return fmt::format("a damaged length at byte {}", offset);
    if (length > left - kRecordOverhead) return fmt::format("cut off inside the record at byte {}", offset);
    const RecordFrame frame{offset, length + kRecordOverhead};
    std::optional<std::span<const std::uint8_t>> data;
    if (length <= max_bytes) {
      const std::span<const std::uint8_t> all = at(offset, frame.size);
      data = all.subspan(kRecordHeader, length);
      if (load_little<std::uint32_t>(all.data() + kRecordHeader + length) != masked_crc32c(*data))
        data.reset();
    }
    visit(frame, data);
    offset += frame.size;
  }
  return {};
}

std::vector<RecordFrame> read_index(const std::filesystem::path& path, std::uint64_t file_size) {
  const std::string text = read_file(path);
  std::vector<RecordFrame> frames;
  const char* at = text.data();
  const char* const end = at + text.size();
  std::uint64_t expected = 0;
  while (at < end) {
    RecordFrame frame;
    const auto offset = std::from_chars(at, end, frame.offset);
    const bool spaced = offset.ec == std::errc{} && offset.ptr < end && *offset.ptr == ' ';
    const auto size = spaced ? std::from_chars(offset.ptr + 1, end, frame.size)
                             : std::from_chars_result{at, std::errc::invalid_argument};
    if (size.ec != std::errc{} || size.ptr == end || *size.ptr != '\n' || frame.offset != expected ||
        frame.size < kRecordOverhead || frame.size > file_size - frame.offset)
      throw DataError("{} does not describe its record file; remove it", path.string());
    frames.push_back(frame);
    expected += frame.size;
    at = size.ptr + 1;
  }
  if (expected != file_size)
    throw DataError("{} does not describe its record file; remove it", path.string());
  return frames;
}

std::string index_text(const std::vector<RecordFrame>& frames) {
  std::string text;
  for (const RecordFrame& frame : frames) text += fmt::format("{} {}\n", frame.offset, frame.size);
  return text;
}

std::span<const std::uint8_t> read_record(const RandomFile& file, const RecordFrame& frame,
                                          std::vector<std::uint8_t>& scratch) {
  if (scratch.size() < frame.size) scratch.resize(frame.size);
  return read_record(file, frame, std::span(scratch).first(frame.size));
}

std::span<const std::uint8_t> read_record(const RandomFile& file, const RecordFrame& frame,
                                          std::span<std::uint8_t> all) {
  check(frame.size >= kRecordOverhead && all.size() == frame.size, "a record frame of {} bytes", frame.size);
  file.read(frame.offset, all);
  std::uint64_t length = 0;
  if (!parse_header(all.first(kRecordHeader), length) || length != frame.size - kRecordOverhead)
    throw DataError("TFRecord: a damaged length at byte {}", frame.offset);
  const std::span<const std::uint8_t> data = all.subspan(kRecordHeader, length);
  if (load_little<std::uint32_t>(all.data() + kRecordHeader + length) != masked_crc32c(data))
    throw DataError("TFRecord: the checksum of the record at byte {} is wrong", frame.offset);
  return data;
}

void append_record(std::vector<std::uint8_t>& out, std::span<const std::uint8_t> data) {
  const std::size_t start = out.size();
  append_little(out, std::uint64_t{data.size()});
  append_little(out, masked_crc32c(std::span(out).subspan(start, 8)));
  out.insert(out.end(), data.begin(), data.end());
  append_little(out, masked_crc32c(data));
}

}  // namespace redline
