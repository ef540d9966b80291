// TFRecord shards compressed with gzip. They do not allow random access, so a conversion unpacks them first.
#pragma once

#include <filesystem>

#include "base/random_file.h"
#include "data/progress.h"
#include "data/sources/record_source.h"

namespace redline::data {

// Whether the file is a gzip file, and not a shard that happens to begin with the same bytes.
bool is_gzip(const RandomFile& file);

// A folder next to a conversion's target with the unpacked shards of a compressed data set.
class UnpackedShards {
 public:
  // Empty path() where source has no compressed shards. Otherwise unpacks them, and copies the lists of
  // classes; shards that an interrupted call has unpacked are kept. Throws IoError; DataError naming a shard
  // that is damaged, cut off, or grows far more than images can; and Stopped.
  UnpackedShards(const std::filesystem::path& source, const std::filesystem::path& target, int threads,
                 const Progress& progress);

  const std::filesystem::path& path() const { return path_; }
  void remove();  // when the conversion is complete; an interrupted one goes on with it

 private:
  std::filesystem::path path_;
};

}  // namespace redline::data
