// Text from strangers (names of files, members of archives, words in records), made safe to print.
#pragma once

#include <string>
#include <string_view>

namespace redline {

// The text with every byte that could steer a terminal or break a line written as \xNN: control characters
// (also those of C1, in UTF-8) and bytes that are not UTF-8. Line feeds stay where keep_lines says so.
std::string printable(std::string_view text, bool keep_lines = false);

}  // namespace redline
