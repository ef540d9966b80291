// Image folders: PATH/train/<class>/… and PATH/val/<class>/…, each class folder holding image files, at any
// depth, or one tar for each class in train (tar_shards.h). Classes are numbered by name, from train's
// folders where there are any, so both splits agree; a file classes.txt beside them gives another order
// (class_list.h).
//
// Class folders alone, PATH/<class>/…, are a data set without a val split.
//
// Validation images may also be in one folder without class folders, if a list has their classes:
//     Tiny ImageNet      val/images, and val/val_annotations.txt
//     Kaggle's ImageNet  ILSVRC/Data/CLS-LOC/val, and LOC_val_solution.csv in the folder above ILSVRC
//     ImageNet           val, and the development kit beside it, packed or unpacked (devkit.h)
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/sources/file_list.h"
#include "data/sources/record_source.h"

namespace redline::data {

// Whether path looks like one: a folder with a train or val folder in it.
bool is_image_folder(const std::filesystem::path& path);

// Whether path holds class folders itself: at least two folders with images right in them, or in `images` as
// Tiny ImageNet has it.
bool is_class_folders(const std::filesystem::path& path);

// The folder of a split under path; empty when there is none.
std::filesystem::path split_folder(const std::filesystem::path& path, Split split);

// The names of the class folders under a split's folder, sorted.
std::vector<std::string> class_folders(const std::filesystem::path& split);

// What lies beside the splits' folders and might be meant to be used (folder.h).
std::vector<LeftOut> unused_entries(const std::filesystem::path& path);

// Throws UsageError when the split is missing; DataError for a split without classes, a class without images,
// a class in val that train does not have, validation images without known classes, a damaged list, or
// circular links.
std::unique_ptr<RecordSource> open_image_folder(const std::filesystem::path& path, Split split,
                                                const SourceOptions& options);

// All images of class folders.
std::unique_ptr<RecordSource> open_class_folders(const std::filesystem::path& path,
                                                 const SourceOptions& options);

// The class folders of `root`, or its images if a list has their classes, as a split with the given classes.
std::unique_ptr<RecordSource> open_labelled_folder(const std::filesystem::path& root,
                                                   std::vector<std::string> classes,
                                                   const SourceOptions& options);

}  // namespace redline::data
