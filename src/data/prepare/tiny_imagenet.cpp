#include "data/prepare/tiny_imagenet.h"

#include <map>
#include <string>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"
#include "data/sources/tiny_imagenet_zip.h"
#include "data/sources/val_annotations.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFolder = "tiny-imagenet-200";

// The folder with train and val in it.
fs::path root_of(const fs::path& path) {
  for (const fs::path& root : {path, path / kFolder})
    if (fs::exists(root / "val" / kValAnnotations) && fs::is_directory(root / "train")) return root;
  throw UsageError("{} is not Tiny ImageNet: it has no train folder and val/{}", path.string(),
                   kValAnnotations);
}

// Boxes by class, as lines "file, left, top, right, bottom".
using Boxes = std::map<std::string, std::string>;

Boxes train_boxes(const fs::path& root) {
  Boxes boxes;
  for (const fs::directory_entry& entry : fs::directory_iterator(root / "train")) {
    const std::string name = entry.path().filename().string();
    if (const fs::path list = entry.path() / (name + "_boxes.txt"); fs::exists(list))
      boxes[name] = read_file(list);
  }
  return boxes;
}

Boxes val_boxes(const std::string& annotations) {
  Boxes boxes;
  for (const ValAnnotation& one : parse_val_annotations(annotations))
    if (!one.box.empty()) boxes[one.wnid] += one.file + "\t" + one.box + "\n";
  return boxes;
}

// Only where the images are: a class may have none in val. Classes' names were checked when their folders
// were made.
void write_boxes(const fs::path& split, const Boxes& boxes) {
  for (const auto& [name, text] : boxes)
    if (fs::is_directory(split / name))
      write_file_atomically(split / name / (name + "_boxes.txt"), text, Sync::no);
}

}  // namespace

UnpackResult prepare_tiny_imagenet(const UnpackOptions& options, const Progress& progress) {
  UnpackOptions unpack = options;
  if (!fs::is_regular_file(options.source)) {
    unpack.source = root_of(options.source);
    UnpackResult result = unpack_to_folders(unpack, progress);
    write_boxes(unpack.target / "train", train_boxes(unpack.source));
    write_boxes(unpack.target / "val", val_boxes(read_file(unpack.source / "val" / kValAnnotations)));
    return result;
  }
  TinyImagenetZip zip = open_tiny_imagenet_zip(unpack.source, unpack.limits_of_source);
  const Boxes val = val_boxes(zip.val_annotations);
  std::vector<SplitSource> splits;
  splits.push_back({Split::train, std::move(zip.train)});
  splits.push_back({Split::val, std::move(zip.val)});
  UnpackResult result = unpack_to_folders(unpack, splits, progress);
  result.unused = std::move(zip.unused);
  write_boxes(unpack.target / "train", zip.train_boxes);
  write_boxes(unpack.target / "val", val);
  return result;
}

}  // namespace redline::data
