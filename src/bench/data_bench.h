// How fast the loader makes batches of a data set: at several thread counts, with the time of its threads by
// stage, and compared with memory bandwidth.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "backend/image_decoder.h"
#include "data/images/augment.h"
#include "data/progress.h"

namespace redline::bench {

struct DataBenchOptions {
  std::filesystem::path path;
  std::vector<int> threads;  // thread counts to measure, each at least 1
  int batch_size = 64;
  int image_size = 224;
  double seconds = 3;                              // per measurement, after a warm-up
  bool cold = true;                                // also measure with a cold page cache
  double max_bad = 0.01;                           // fraction of images that may be bad
  std::shared_ptr<backend::ImageDecoder> decoder;  // decodes training images on a GPU; empty: threads decode
};

struct DataTiming {
  bool train = true;  // training images and transform, else those of evaluation
  bool cold = false;
  int threads = 1;
  std::int64_t images = 0;
  double images_per_second = 0;
  data::StageSeconds stages;  // thread seconds per image
  double hand_over = 0;       // seconds per image to copy it out of the ring, as the trainer does
  double waited = 0;          // fraction of the time that the consumer waited for batches
  double cpu_share = 0;       // fraction of images that threads decoded to relieve the GPU
  double bytes_moved = 0;     // per second, by unavoidable copies: reads and writes both count
};

struct CopyTiming {
  int threads = 1;
  double bytes_per_second = 0;  // reads and writes both count
};

struct DataBench {
  std::string kind;  // of source
  std::int64_t train_images = 0, val_images = 0;
  double mean_bytes = 0;  // of an encoded training image, estimated from a sample
  std::vector<CopyTiming> copies;
  std::vector<DataTiming> timings;  // without evaluation's if there is no val
  std::uint64_t peak_memory = 0;    // peak resident bytes while loading
};

// progress counts measurements. Throws as the loader does; UsageError for invalid options; Stopped when
// progress asks for it.
DataBench bench_data(const DataBenchOptions& options, const data::Progress& progress = {});

// Flushes every file under path and drops it from the page cache, so that the next read comes from disk.
// Skips files that cannot be opened. Returns the size of the files dropped.
std::uint64_t drop_page_cache(const std::filesystem::path& path);

}  // namespace redline::bench
