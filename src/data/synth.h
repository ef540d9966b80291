// `redline data synth`: a labelled data set of generated pictures (synth_image.h), for demonstrations, tests
// and measurements without a download.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>

#include "data/progress.h"

namespace redline::data {

struct SynthOptions {
  std::filesystem::path path;  // must not exist, or be an empty folder
  int classes = 10;
  std::int64_t train = 4000;  // images over all classes
  std::int64_t val = 1000;
  int width = 64;
  int height = 64;
  int quality = 90;  // of the JPEGs
  std::uint64_t seed = 0;
  int threads = 1;
};

// Writes path/train/<class>/NNNNNN.jpg and path/val/<class>/NNNNNN.jpg. The same options but for threads give
// the same bytes. The folder appears under its name only when it is whole; after a failure, or when progress
// asks to stop, nothing is left. Throws UsageError for impossible options or a folder that is not empty,
// IoError when the file system refuses.
void write_synth(const SynthOptions& options, const Progress& progress = {});

}  // namespace redline::data
