// Lists of sizes, as the bench commands take them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace redline::bench {

// Numbers up to 2^30 from a list of numbers and ranges that double: "128-128M", "4K,1M". Throws UsageError
// naming `flag`.
std::vector<std::size_t> parse_sizes(const std::string& text, const char* flag = "--sizes");

}  // namespace redline::bench
