// Boxes around the objects in ImageNet's images, from the annotation files (XML in PASCAL VOC's form, one an
// image) that are published beside the images.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/example.h"
#include "data/progress.h"

namespace redline::data {

struct NamedBox {
  std::string name;  // of what is in it: a class's wnid
  BoundingBox box;   // within 0..1, with xmin < xmax and ymin < ymax

  bool operator==(const NamedBox&) const = default;
};

// The boxes of one annotation file, as shares of the size that it gives for its image. A box without an area
// inside the image is left out. Throws DataError, with the line, for anything else; a file that declares
// entities is refused before they can grow.
std::vector<NamedBox> parse_annotation(std::string_view xml);

// By image. Immutable once loaded: any thread.
class BoxTable {
 public:
  // Reads every *.xml at any depth under a folder and in the archives (.tar, .tar.gz, .tgz, .zip) in it, or
  // those in one archive. A file that cannot be parsed is named in the log and left out. Throws UsageError
  // when there is nothing there, IoError, DataError for a damaged archive, and Stopped.
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

// Where boxes lie beside ImageNet's tars: a folder Annotation or Annotations, or else the folder itself when
// it has archives of boxes (ILSVRC2012_bbox_*). Empty when there are none.
std::filesystem::path boxes_beside(const std::filesystem::path& folder);

}  // namespace redline::data
