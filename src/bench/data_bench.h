// How fast a data set becomes batches: the loader at several thread counts, where its threads' time goes, and
// how that compares with what the memory can move.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "backend/image_decoder.h"
#include "data/augment.h"
#include "data/progress.h"

namespace redline::bench {

struct DataBenchOptions {
  std::filesystem::path path;
  std::vector<int> threads;  // counts to measure with, each at least 1
  int batch_size = 64;
  int image_size = 224;
  double seconds = 3;                              // of each measurement, after a warm-up
  bool cold = true;                                // also measure with the files dropped from the page cache
  double max_bad = 0.01;                           // share of the images that may be bad
  std::shared_ptr<backend::ImageDecoder> decoder;  // of training images, on a GPU; empty: the threads
};

struct DataTiming {
  bool train = true;  // the training transform on the training images, or evaluation's on val's
  bool cold = false;
  int threads = 1;
  std::int64_t images = 0;
  double images_per_second = 0;
  data::StageSeconds stages;  // seconds of a thread for an image
  double hand_over = 0;       // seconds to copy an image out of the ring, as the trainer does
  double waited = 0;          // share of the time in which the reader of batches waited
  double cpu_share = 0;       // of the images, that threads decoded to relieve the GPU
  double bytes_moved = 0;     // by copies that cannot be avoided, a second: read and written bytes both count
};

struct CopyTiming {
  int threads = 1;
  double bytes_per_second = 0;  // read and written bytes both count
};

struct DataBench {
  std::string kind;  // of source
  std::int64_t train_images = 0, val_images = 0;
  double mean_bytes = 0;  // of an encoded training image, from a sample of them
  std::vector<CopyTiming> copies;
  std::vector<DataTiming> timings;  // val's are left out where there is no val
  std::uint64_t peak_memory = 0;    // bytes resident at most while images were loaded
};

// progress counts measurements. Throws as the loader does; UsageError for options that make no sense; Stopped
// when progress asks for it.
DataBench bench_data(const DataBenchOptions& options, const data::Progress& progress = {});

// Writes back and drops what the page cache has of every file under path, so that the next read comes from
// the disk. Files that cannot be opened are passed over. Gives the bytes of the files it dropped.
std::uint64_t drop_page_cache(const std::filesystem::path& path);

}  // namespace redline::bench
