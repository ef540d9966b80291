// Image folders: PATH/train/<class>/… and PATH/val/<class>/…, each class folder holding JPEG or PNG files, at
// any depth. Classes are numbered by name, from train's folders where there are any, so both splits agree.
//
// Tiny ImageNet as it is shipped is read too: its val images lie in one folder, val/images, and
// val_annotations.txt says which class each has.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "data/record_source.h"

namespace redline::data {

// Whether a file of this name is taken for an image: .jpg, .jpeg or .png in any case, and not hidden.
bool is_image_name(std::string_view name);

// Whether path looks like one: a folder with a train or val folder in it.
bool is_image_folder(const std::filesystem::path& path);

// The folder of a split under path; empty when there is none.
std::filesystem::path split_folder(const std::filesystem::path& path, Split split);

// Throws UsageError when the split is missing; DataError for a split without classes, a class without images,
// a class in val that train does not have, a damaged val_annotations.txt, or links that go in circles.
std::unique_ptr<RecordSource> open_image_folder(const std::filesystem::path& path, Split split,
                                                const SourceOptions& options);

}  // namespace redline::data
