// Parses the lists of sizes that bench commands take.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace redline::bench {

// Numbers up to 2^30, from a list of numbers and ranges; a range doubles: "128-128M", "4K,1M". Throws
// UsageError naming `flag`.
std::vector<std::size_t> parse_sizes(const std::string& text, const char* flag = "--sizes");

}  // namespace redline::bench
