// Folders of TFRecord shards (shard_names.h), each record a tf.Example (example.h) with an image and a label.
// Labels count from 1, as in ImageNet's records, or from 0 where a record has that label.
//
// Class names come from classes.txt (class_list.h) or TFDS's label.labels.txt next to the shards, otherwise
// from the records: synset, text, or the label's number.
//
// The labels are inside the records, so the first use reads everything once, checks every checksum, and
// writes a hidden index file next to the shards (record_index.h). Shards written by Redline come with an
// index.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/sources/record_index.h"
#include "data/sources/record_source.h"

namespace redline::data {

// Throws UsageError when the split is missing or its shards are compressed, DataError when shards are missing
// or hold no usable record.
std::unique_ptr<RecordSource> open_tfrecord_folder(const std::filesystem::path& folder, Split split,
                                                   const SourceOptions& options);

// The hidden index file of a split.
std::filesystem::path index_path(const std::filesystem::path& folder, Split split);

// The names of a label's class, as read from records.
struct ClassTitle {
  std::string synset, text;
};

// Distinct names for the classes from first_label on, from the names in records.
std::vector<std::string> name_classes(const std::map<std::int32_t, ClassTitle>& titles,
                                      std::int32_t first_label);

}  // namespace redline::data
