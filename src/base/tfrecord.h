// TFRecord files: a sequence of records, each framed as
//     length (8 bytes, little endian) | masked CRC-32C of the length (4) | data | masked CRC-32C of it (4)
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/random_file.h"

namespace redline {

constexpr std::uint64_t kRecordHeader = 12;    // length and its CRC
constexpr std::uint64_t kRecordOverhead = 16;  // with the CRC after the data

// Where a record lies: its frame, as the lines of a `.idx` file give it.
struct RecordFrame {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;  // with the overhead

  bool operator==(const RecordFrame&) const = default;
};

struct RecordList {
  std::vector<RecordFrame> frames;
  // Why the rest of the file could not be read, with the byte; empty if it was read to its end. After a
  // damaged length the next record cannot be found.
  std::string damage;
};

// Reads only the lengths, and checks their CRCs. Throws IoError; damage is reported in the result.
RecordList list_records(const RandomFile& file);

// Reads the file from front to end in large pieces, and calls visit for each record with its frame and its
// data; the data is empty (no value) if its CRC is wrong or it has more than max_bytes. The span is valid
// during the call. Returns the damage, as list_records does. Throws IoError.
std::string scan_records(
    const RandomFile& file, std::uint64_t max_bytes,
    const std::function<void(const RecordFrame&, std::optional<std::span<const std::uint8_t>>)>& visit);

// The frames that an index file names (a line "offset size" each), checked against the size of the file they
// are for. Throws DataError when the index does not describe that file.
std::vector<RecordFrame> read_index(const std::filesystem::path& path, std::uint64_t file_size);

// One line per frame, for read_index and other programs with random access.
std::string index_text(const std::vector<RecordFrame>& frames);

// The data of a record; it is read into `into`, which has the frame's size, or into scratch. Throws DataError
// when a CRC is wrong or the length is not the frame's.
std::span<const std::uint8_t> read_record(const RandomFile& file, const RecordFrame& frame,
                                          std::span<std::uint8_t> into);
std::span<const std::uint8_t> read_record(const RandomFile& file, const RecordFrame& frame,
                                          std::vector<std::uint8_t>& scratch);

// Appends a framed record to out.
void append_record(std::vector<std::uint8_t>& out, std::span<const std::uint8_t> data);

}  // namespace redline
