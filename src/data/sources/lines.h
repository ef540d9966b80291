// The lines of a text that was read whole.
#pragma once

#include <algorithm>
#include <string_view>

namespace redline::data {

// Takes the first line off `text`, without its "\n" or "\r\n"; false when nothing is left.
inline bool next_line(std::string_view& text, std::string_view& line) {
  if (text.empty()) return false;
  const std::size_t end = std::min(text.find('\n'), text.size());
  line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return true;
}

}  // namespace redline::data
