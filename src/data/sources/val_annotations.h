// Tiny ImageNet's val_annotations.txt: the class and bounding box of each validation image.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace redline::data {

constexpr const char* kValAnnotations = "val_annotations.txt";

struct ValAnnotation {
  std::string file;  // an image's name, without folders
  std::string wnid;
  std::string box;  // "left\ttop\tright\tbottom"; may be empty
};

// Lines of file name, class and box, with tabs between them. Throws DataError with the number of a line that
// does not name an image and a class.
std::vector<ValAnnotation> parse_val_annotations(std::string_view text);

}  // namespace redline::data
