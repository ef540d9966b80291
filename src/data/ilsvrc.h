// ImageNet as it is shipped, read in place: a folder with
//     ILSVRC2012_img_train.tar         a tar of tars, one a class: n01440764.tar holds n01440764_10026.JPEG,
//     … ILSVRC2012_img_val.tar           ILSVRC2012_val_00000001.JPEG, … ILSVRC2012_devkit_t12.tar.gz which
//     class each validation image has (devkit.h)
//
// Classes are numbered by name, as in an image folder. Where every image lies is found once, by reading the
// tars' headers, and kept in a hidden index file beside them (record_index.h).
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "data/record_source.h"

namespace redline::data {

constexpr const char* kIlsvrcTrain = "ILSVRC2012_img_train.tar";
constexpr const char* kIlsvrcVal = "ILSVRC2012_img_val.tar";
constexpr const char* kIlsvrcDevkit = "ILSVRC2012_devkit_t12.tar.gz";

// Whether path has either of the two tars.
bool is_ilsvrc(const std::filesystem::path& path);

// The tar of a split, which may not be there.
std::filesystem::path ilsvrc_tar(const std::filesystem::path& path, Split split);

// The number of the validation image with this file name, from 1; 0 for other names.
int ilsvrc_val_number(std::string_view file_name);

// Train's images come class by class, by name; val's by number. Throws UsageError when the split's tar, or
// val's development kit, is missing; DataError when one is damaged, when an image appears twice, or when val
// has images that the kit says nothing about or classes that train lacks.
std::unique_ptr<RecordSource> open_ilsvrc(const std::filesystem::path& path, Split split,
                                          const SourceOptions& options);

}  // namespace redline::data
