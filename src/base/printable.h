// Makes untrusted text (names of files, members of archives, words in records) safe to print.
#pragma once

#include <string>
#include <string_view>

namespace redline {

// Writes every byte that could control a terminal or break a line as \xNN: control characters (including C1,
// in UTF-8) and bytes that are not UTF-8. Line feeds stay with keep_lines.
std::string printable(std::string_view text, bool keep_lines = false);

}  // namespace redline
