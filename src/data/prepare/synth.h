// `redline data synth`: a labelled data set of generated pictures (synth_image.h), for demonstrations, tests
// and measurements without a download.
#pragma once

#include <cstdint>
#include <filesystem>

#include "data/progress.h"

namespace redline::data {

enum class SynthFormat {
  folders,   // path/train/<class>/NNNNNN.jpg and path/val/<class>/NNNNNN.jpg
  tfrecord,  // as convert_to_tfrecord() writes them
  tars       // ImageNet's two tars and its development kit, as ilsvrc.h reads them
};

struct SynthOptions {
  std::filesystem::path path;  // must not exist, or be an empty folder
  SynthFormat format = SynthFormat::folders;
  int classes = 10;
  std::int64_t train = 4000;  // images over all classes
  std::int64_t val = 1000;
  int width = 64;
  int height = 64;
  bool imagenet_sizes = false;  // instead of width × height: a mix of sizes around 500 × 375, as ImageNet has
  int quality = 90;             // of the JPEGs
  int train_shards = 8;         // of the TFRecord format
  int val_shards = 2;
  std::uint64_t seed = 0;
  int threads = 1;
};

// The same options give the same bytes for any number of threads, and the same images in every format. The
// folder appears under its name only when it is complete; after a failure, or if progress asks to stop,
// nothing is left. Throws UsageError for impossible options or a folder that is not empty, IoError if the
// file system refuses.
void write_synth(const SynthOptions& options, const Progress& progress = {});

}  // namespace redline::data
