// ImageNet as it is shipped, read in place: a folder with
//     ILSVRC2012_img_train.tar: a tar of tars, one per class: n01440764.tar has n01440764_10026.JPEG, …
//     ILSVRC2012_img_val.tar: ILSVRC2012_val_00000001.JPEG, …
//     ILSVRC2012_devkit_t12.tar.gz: the classes of the validation images (devkit.h)
//
// Classes are numbered by name, as in an image folder. The position of every image is found once, by reading
// the tars' headers, and kept in a hidden index file next to them (record_index.h).
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "data/sources/record_source.h"

namespace redline::data {

constexpr const char* kIlsvrcTrain = "ILSVRC2012_img_train.tar";
constexpr const char* kIlsvrcVal = "ILSVRC2012_img_val.tar";
constexpr const char* kIlsvrcDevkit = "ILSVRC2012_devkit_t12.tar.gz";

// Whether path has either of the two tars.
bool is_ilsvrc(const std::filesystem::path& path);

// The tar of a split, which may not exist.
std::filesystem::path ilsvrc_tar(const std::filesystem::path& path, Split split);

// The number of the validation image with this file name, from 1; 0 for other names.
int ilsvrc_val_number(std::string_view file_name);

// Train's images are ordered by class and name, val's by number. Throws UsageError if the split's tar, or
// val's development kit, is missing; DataError if one is damaged, if an image appears twice, or if val has
// images that the kit does not list or classes that are not in train.
std::unique_ptr<RecordSource> open_ilsvrc(const std::filesystem::path& path, Split split,
                                          const SourceOptions& options);

}  // namespace redline::data
