// Folders of TFRecord shards (shard_names.h), each record a tf.Example (example.h) with an image and a label.
// Labels count from 1, as in ImageNet's records, or from 0 where a record has that label.
//
// Classes are called as classes.txt (class_list.h) or TFDS's label.labels.txt beside the shards says, else by
// what the records hold: synset, text, or the label's number.
//
// Labels lie inside the records, so the first opening reads everything once, checking every checksum, and
// keeps what it found in a hidden index file beside the shards (record_index.h). Shards that Redline has
// written come with it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/record_index.h"
#include "data/record_source.h"

namespace redline::data {

// Throws UsageError when the split is missing or its shards are compressed, DataError when shards are missing
// or hold no usable record.
std::unique_ptr<RecordSource> open_tfrecord_folder(const std::filesystem::path& folder, Split split,
                                                   const SourceOptions& options);

// The hidden index file of a split.
std::filesystem::path index_path(const std::filesystem::path& folder, Split split);

// How records call the class of a label, as read.
struct ClassTitle {
  std::string synset, text;
};

// The names of classes first_label … from what records call them. They differ from each other.
std::vector<std::string> name_classes(const std::map<std::int32_t, ClassTitle>& titles,
                                      std::int32_t first_label);

}  // namespace redline::data
