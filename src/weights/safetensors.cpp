#include "weights/safetensors.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/build_info.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "graph/half.h"

namespace redline::weights {
namespace {

// The file has elements in this machine's byte order.
static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kLengthBytes = 8;

std::span<std::uint8_t> as_octets(std::span<std::byte> bytes) {
  return {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()};
}

Header read_header(const RandomFile& file, std::uint64_t& data_begin) {
  std::uint64_t length = 0;
  if (file.size() < kLengthBytes) throw DataError("it has only {} bytes", file.size());
  file.read(0, as_octets(std::as_writable_bytes(std::span(&length, 1))));
  if (length > file.size() - kLengthBytes || length > kMostHeaderBytes)
    throw DataError("its first 8 bytes are not the length of a header");
  std::string json(length, '\0');
  file.read(kLengthBytes, as_octets(std::as_writable_bytes(std::span(json))));
  data_begin = kLengthBytes + length;
  return parse_header(json, file.size() - data_begin);
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) : file_(path) {
  try {
    Header header = read_header(file_, data_begin_);
    take(std::move(header.entries), std::move(header.metadata));
  } catch (const DataError& error) {
    throw DataError("{} is not a valid safetensors file: {}", path.string(), error.what());
  } catch (const IoError& error) {
    throw IoError("{}: {}", path.string(), error.what());
  }
}

void SafetensorsReader::read_bytes(const Entry& entry, std::span<std::byte> bytes) const {
  check(bytes.size() == entry.bytes, "'{}' has {} bytes, not {}", entry.name, entry.bytes, bytes.size());
  try {
    file_.read(data_begin_ + entry.offset, as_octets(bytes));
  } catch (const Error& error) {
    throw IoError("{}: {}", path().string(), error.what());
  }
}

void SafetensorsReader::read(const Entry& entry, std::span<float> values) const {
  check(values.size() == entry.elements(), "'{}' has {} elements, not {}", entry.name, entry.elements(),
        values.size());
  read_floats(entry, values, [&](std::size_t at, std::span<std::byte> bytes) {
    Entry part = entry;
    part.offset += at;
    part.bytes = bytes.size();
    read_bytes(part, bytes);
  });
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<Entry> entries,
                                     const Metadata& metadata, Sync sync)
    : file_(path, sync), entries_(std::move(entries)) {
  const auto narrower = [](const Entry& a, const Entry& b) { return size_of(a.type) < size_of(b.type); };
  check(std::ranges::adjacent_find(entries_, narrower) == entries_.end(),
        "a tensor of wider elements follows one of narrower elements");
  Metadata stamped = metadata;
  for (const auto& [key, value] : program_facts()) stamped["redline." + key] = value;
  const std::string header = header_bytes(entries_, stamped);
  put(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::put(std::span<const std::byte> bytes) {
  file_.write(bytes);
  written_.bytes += bytes.size();
  written_.crc32c =
      crc32c({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, written_.crc32c);
}

const Entry& SafetensorsWriter::next(std::size_t elements, std::size_t element_bytes) {
  check(done_ < entries_.size(), "more than the {} announced tensors", entries_.size());
  const Entry& entry = entries_[done_++];
  check(entry.bytes == elements * element_bytes, "'{}' has {} bytes, not {}", entry.name, entry.bytes,
        elements * element_bytes);
  return entry;
}

void SafetensorsWriter::write(std::span<const float> values) {
  check(done_ < entries_.size(), "more than the {} announced tensors", entries_.size());
  const ElementType type = entries_[done_].type;
  if (type == ElementType::f32) return write_bytes(std::as_bytes(values));
  check(type == ElementType::f16 || type == ElementType::bf16, "'{}' does not hold floats",
        entries_[done_].name);
  next(values.size(), sizeof(std::uint16_t));
  std::vector<std::uint16_t> chunk;
  for (std::size_t at = 0; at < values.size(); at += kChunk) {
    const std::span<const float> part = values.subspan(at, std::min(kChunk, values.size() - at));
    chunk.resize(part.size());
    std::ranges::transform(part, chunk.begin(),
                           type == ElementType::f16 ? graph::float_to_f16 : graph::float_to_bf16);
    put(std::as_bytes(std::span(chunk)));
  }
}

void SafetensorsWriter::write_bytes(std::span<const std::byte> bytes) {
  next(bytes.size(), 1);
  put(bytes);
}

SafetensorsWriter::Written SafetensorsWriter::commit() {
  check(done_ == entries_.size(), "{} of {} announced tensors were written", done_, entries_.size());
  file_.commit();
  return written_;
}

}  // namespace redline::weights
