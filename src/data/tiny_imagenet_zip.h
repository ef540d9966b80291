// Tiny ImageNet's zip, read in place: train/<wnid>/images/…, val/images/… and val/val_annotations.txt, in the
// archive's top folder. What else is in the archive (test/) is not touched.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "data/record_source.h"

namespace redline::data {

// Whether path is a file whose name ends with .zip.
bool is_zip_name(const std::filesystem::path& path);

// Samples come class by class and by name, as from the unpacked folder. Throws IoError, and DataError naming
// the archive when it is damaged or not Tiny ImageNet's.
std::unique_ptr<RecordSource> open_tiny_imagenet_zip(const std::filesystem::path& path, Split split,
                                                     const SourceOptions& options);

// The lists of boxes beside the training images, by class; and val_annotations.txt.
std::map<std::string, std::string> tiny_imagenet_zip_boxes(const std::filesystem::path& path);
std::string tiny_imagenet_zip_annotations(const std::filesystem::path& path);

}  // namespace redline::data
