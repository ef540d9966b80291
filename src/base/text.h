// Numbers and names as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace redline {

// "0 B", "512 B", "1.5 KiB", "24 GiB": three significant digits, powers of 1024.
std::string format_bytes(std::uint64_t bytes);

// "950", "25.6K", "1.28M", "4.09G": three significant digits, powers of 1000.
std::string format_count(double count);
// The same with a unit: "4.09 GFLOP/s".
std::string format_count(double count, std::string_view unit);

// A cell of a CSV file (RFC 4180): in quotes if it has commas, quotes or line ends.
std::string csv_quoted(std::string_view text);

// The candidate that word most likely meant, in any case: the only one that begins with it, or one within an
// edit (or a swap of neighbours) in three letters. Empty when none is near, or several begin with it.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace redline
