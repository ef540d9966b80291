#include "data/sources/val_annotations.h"

#include <algorithm>

#include "base/error.h"
#include "data/sources/file_list.h"
#include "data/sources/lines.h"

namespace redline::data {

std::vector<ValAnnotation> parse_val_annotations(std::string_view text) {
  std::vector<ValAnnotation> annotations;
  int number = 0;
  for (std::string_view line; next_line(text, line);) {
    ++number;
    if (line.empty()) continue;
    const std::size_t first = std::min(line.find('\t'), line.size());
    const std::size_t second = std::min(line.find('\t', first + 1), line.size());
    ValAnnotation one;
    one.file = line.substr(0, first);
    if (first < line.size()) one.wnid = line.substr(first + 1, second - first - 1);
    if (second < line.size()) one.box = line.substr(second + 1);
    if (one.wnid.empty() || !is_image_name(one.file) || one.file.find('/') != one.file.npos)
      throw DataError("line {} does not name an image and its class: '{}'", number, line.substr(0, 200));
    annotations.push_back(std::move(one));
  }
  return annotations;
}

}  // namespace redline::data
