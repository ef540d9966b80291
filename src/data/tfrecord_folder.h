// Folders of TFRecord shards as ImageNet is often kept in: train-NNNNN-of-MMMMM and
// validation-NNNNN-of-MMMMM, each record a tf.Example with image/encoded and image/class/label (from 1).
//
// Labels lie inside the records, so the first opening reads everything once, checking every checksum, and
// keeps what it found in a hidden index file beside the shards (record_index.h).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/record_source.h"

namespace redline::data {

// The shard files of a split in order; empty when the folder has none. Throws DataError when some are
// missing.
std::vector<std::string> shard_names(const std::filesystem::path& folder, Split split);

// "train-00003-of-00008".
std::string shard_name(Split split, int shard, int shards);

// Throws UsageError when the split is missing, DataError when shards are missing or hold no usable record.
std::unique_ptr<RecordSource> open_tfrecord_folder(const std::filesystem::path& folder, Split split,
                                                   const SourceOptions& options);

}  // namespace redline::data
