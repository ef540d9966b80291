// Reading and writing whole files, with reusable memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace redline::data {

// The content of a file; it lives in scratch. Any thread. Throws IoError with the reason, DataError when the
// file is larger than max_bytes; neither names the file, since callers know it.
std::span<const std::uint8_t> read_whole(const std::filesystem::path& path, std::int64_t max_bytes,
                                         std::vector<std::uint8_t>& scratch);

// Makes a new file with this content. Throws IoError naming the path; part of the file may then be there, so
// write into a folder that is renamed or removed as a whole.
void write_whole(const std::filesystem::path& path, std::span<const std::uint8_t> bytes);

}  // namespace redline::data
