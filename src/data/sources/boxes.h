// Bounding boxes of the objects in ImageNet's images, from the published annotation files (XML in PASCAL
// VOC's format, one per image).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/progress.h"
#include "data/sources/example.h"

namespace redline::data {

struct NamedBox {
  std::string name;  // of what is in it: a class's wnid
  BoundingBox box;   // within 0..1, with xmin < xmax and ymin < ymax

  bool operator==(const NamedBox&) const = default;
};

// The boxes of one annotation file, as fractions of the image size that it gives. A box without an area
// inside the image is skipped. Throws DataError, with the line, for anything else; a file that declares
// entities is refused before they can expand.
std::vector<NamedBox> parse_annotation(std::string_view xml);

// By image. Immutable once loaded: any thread.
class BoxTable {
 public:
  // Reads every *.xml at any depth under a folder and in the archives (.tar, .tar.gz, .tgz, .zip) in it, or
  // those in one archive. A file that cannot be parsed is named in the log and skipped. Throws UsageError if
  // there is none, IoError, DataError for a damaged archive, and Stopped.
  static BoxTable load(const std::filesystem::path& path, const Progress& progress = {});

  // Boxes of this class in the image with this file name.
  std::vector<BoundingBox> find(std::string_view file_name, std::string_view wnid) const;

  std::size_t images() const { return boxes_.size(); }
  std::size_t bad_files() const { return bad_; }
  std::string fingerprint() const;  // one for all boxes, to tell one table from another

 private:
  void add(const std::string& name, std::string_view xml);

  std::unordered_map<std::string, std::vector<NamedBox>> boxes_;  // by file name without its ending
  std::size_t bad_ = 0;
};

// Whether path, next to ImageNet's tars, has a name of a source of boxes.
bool is_box_source(const std::filesystem::path& path);

// Where the boxes are next to ImageNet's tars: a folder Annotation or Annotations, or else the folder itself
// if it has archives of boxes (ILSVRC2012_bbox_*). Empty if there are none.
std::filesystem::path boxes_beside(const std::filesystem::path& folder);

}  // namespace redline::data
