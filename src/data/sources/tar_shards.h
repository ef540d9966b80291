// Samples in tars, read in place:
//     train/n01440764.tar, …      one tar for each class, as ImageNet's training tar unpacks to
//     imagenet1k-train-0000.tar   WebDataset: beside each image <key>.jpg a <key>.cls with its label, from 0
//
// The position of every image is found once, by reading the tars' headers (and the labels), and kept in a
// hidden index file next to them (record_index.h).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/sources/record_source.h"

namespace redline::data {

// The names of the tars in a folder, sorted; empty when it has none.
std::vector<std::string> tar_names(const std::filesystem::path& folder);

// Tars of a split, by name: those whose names have a word for it (shard_names.h).
std::vector<std::string> tar_names(const std::filesystem::path& folder, Split split);

// Whether a folder has class tars and nothing that could be a class folder.
bool is_class_tars(const std::filesystem::path& folder);
// The classes, from the names of class tars.
std::vector<std::string> classes_of_tars(const std::filesystem::path& folder);

// Throws DataError naming a tar that is damaged or cut off, holds no images or one image twice.
std::unique_ptr<RecordSource> open_class_tars(const std::filesystem::path& folder,
                                              std::vector<std::string> classes, const SourceOptions& options);

// folder: where the shards of both splits are. Class names come from its classes.txt (class_list.h),
// otherwise they are numbers. Throws DataError as above, and for an image without a label.
std::unique_ptr<RecordSource> open_web_dataset(const std::filesystem::path& folder, Split split,
                                               const SourceOptions& options);

}  // namespace redline::data
