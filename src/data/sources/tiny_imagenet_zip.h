// Tiny ImageNet's zip, read in place: train/<wnid>/images/…, val/images/… and val/val_annotations.txt, in the
// archive's top folder. Other members of the archive (test/) are ignored.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/sources/record_source.h"

namespace redline::data {

// Whether path is a file whose name ends with .zip.
bool is_zip_name(const std::filesystem::path& path);

// The folders of the archive beside train and val: "test/".
std::vector<LeftOut> unused_in_zip(const std::filesystem::path& path);

// Samples come class by class and by name, as from the unpacked folder. Throws IoError, and DataError naming
// the archive when it is damaged or not Tiny ImageNet's.
std::unique_ptr<RecordSource> open_tiny_imagenet_zip(const std::filesystem::path& path, Split split,
                                                     const SourceOptions& options);

// All of it, with the archive's directory read once.
struct TinyImagenetZip {
  std::unique_ptr<RecordSource> train, val;
  std::map<std::string, std::string> train_boxes;  // by class: the lists that lie beside the training images
  std::string val_annotations;                     // val_annotations.txt
  std::vector<LeftOut> unused;                     // folders beside train and val
};
TinyImagenetZip open_tiny_imagenet_zip(const std::filesystem::path& path, const SourceOptions& options);

}  // namespace redline::data
