// The contents of a data set: `redline data info`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/sources/record_source.h"

namespace redline::data {

struct SplitInfo {
  Split split = Split::train;
  std::string kind;  // of source
  std::int64_t images = 0;
  int classes = 0;
  std::int64_t fewest = 0;  // images in a class that has any
  std::int64_t most = 0;
  int without = 0;  // classes that have no image in this split

  // Of the images looked at, evenly spread over the split.
  std::int64_t looked_at = 0;
  std::map<std::string, std::int64_t> formats;  // "JPEG", "PNG grey", …
  double mean_bytes = 0;
  int min_width = 0, max_width = 0, min_height = 0, max_height = 0;
  double mean_width = 0, mean_height = 0;
  double mean_plain_pixels = 0;  // 0 for an image that decoders in hardware do not take
  std::int64_t unreadable = 0;
  std::string first_unreadable;  // name and reason

  std::vector<LeftOut> left_out;    // found in the split's folders and not read
  std::vector<std::string> damage;  // parts that could not be listed
};

struct DataInfo {
  std::vector<std::string> classes;
  std::vector<SplitInfo> splits;  // those that are there
  std::vector<LeftOut> unused;    // beside the splits
};

// Reads the headers of up to `sample` images, and fills in `info`.
void look_at_images(const RecordSource& source, std::int64_t sample, SplitInfo& info);

// Counts everything, and reads the headers of up to `sample` images a split. Throws as open_source does.
DataInfo inspect(const std::filesystem::path& path, std::int64_t sample);

}  // namespace redline::data
