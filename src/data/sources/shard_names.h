// Finds the TFRecord shards of a split in a folder, by their usual names:
//     train-00000-of-01024                         ImageNet's records, as TensorFlow's scripts write them
//     validation-00000-of-00128, val-…, valid-…
//     train-00000-of-00008.tfrecord
//     imagenet2012-train.tfrecord-00000-of-01024   TFDS
//     train.tfrecord, cats_train_3.tfrecords       without a count, in the order of their names
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/sources/record_source.h"

namespace redline::data {

// The shard files of a split in order; empty when the folder has none. Throws DataError when some are
// missing, or files of two sets are mixed.
std::vector<std::string> shard_names(const std::filesystem::path& folder, Split split);

// "train-00003-of-00008": the name that Redline gives.
std::string shard_name(Split split, int shard, int shards);

// Whether a file name is that of a shard of any split.
bool is_shard_name(std::string_view name);

// The split named in a file name ("imagenet1k-val-03.tar": val); none if there is no such word.
enum class NamedSplit { none, train, val, other };
NamedSplit split_in_name(std::string_view name);

}  // namespace redline::data
