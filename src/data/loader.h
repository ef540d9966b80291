// The loader: threads that read, decode and augment samples into a fixed number of batches, ahead of the
// trainer. The thread that completes a batch also mixes it, if requested.
//
// Its memory is allocated once. The content of a batch depends only on the data, the seed and the epoch,
// never on timing. A sample that cannot be read or decoded is named in the log once and counted; training
// uses another sample instead (chosen by seed, epoch and sample), evaluation skips the row (label -1). More
// bad samples than allowed end the run with DataError, or with IoError when most of them could not be read.
//
// With a GPU's decoder, the threads read files and choose crops as before, and the GPU decodes what it
// supports; batches are then on the GPU. The threads decode the rest, and whatever would make the trainer
// wait. The crops are the same either way; pixels differ by the rounding of the two decoders. A GPU's decoder
// can only crop and mirror: do not give one with mixing or other distortions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "backend/image_decoder.h"
#include "data/bad_samples.h"
#include "data/batch_source.h"
#include "data/host_memory.h"
#include "data/images/augment.h"
#include "data/images/decode.h"
#include "data/images/mix.h"
#include "data/sources/record_source.h"

namespace redline::data {

struct LoaderOptions {
  int batch_size = 64;  // of this rank
  int rank = 0;
  int ranks = 1;
  int threads = 1;  // workers; the trainer's thread does no loading
  int slots = 4;    // batches in memory: up to two on lease, the others being filled or waiting
  std::uint64_t seed = 0;
  TransformOptions transform;  // transform.train also decides order and padding
  MixOptions mix;              // of training batches
  DecodeLimits limits;
  double max_bad = 0.001;                          // share of the samples that may be bad (bad_limit.h)
  HostAllocator allocator;                         // empty: ordinary memory
  std::shared_ptr<backend::ImageDecoder> decoder;  // a GPU's; empty: the threads decode everything
  bool fixed_split = false;                        // what the GPU can decode it does, however long that takes
};

class Loader final : public BatchSource {
 public:
  // Starts the threads; nothing is read before start_epoch(). Throws UsageError for impossible options.
  Loader(std::shared_ptr<const RecordSource> source, const LoaderOptions& options);
  // Returns as soon as the samples being decoded are done.
  ~Loader() override;
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  int batch_size() const override;
  int image_size() const override;
  std::int64_t batches_per_epoch() const override;
  std::int64_t samples() const override;
  int classes() const override;
  void set_image_size(int size) override;
  void start_epoch(std::int64_t epoch, std::int64_t first_batch = 0) override;
  bool next(Batch& batch) override;
  bool wait(const std::function<bool()>& stop) override;
  // Seconds that next() and wait() have spent waiting for data since construction.
  double waited_seconds() const;

  // The share of rows that the threads decode to relieve the GPU: 0 without a GPU's decoder. Any thread.
  double cpu_share() const;

  // The workers' time by stage since construction, summed over all workers; decoding on the GPU is not
  // included. Any thread.
  StageSeconds stage_seconds() const;
  std::optional<double> reading_share() const override;

  // Each bad sample found so far, once, in the order of the data set. Any thread.
  std::vector<BadSample> bad_samples() const;

 private:
  class Pool;
  std::shared_ptr<Pool> pool_;  // leases know it, weakly
};

}  // namespace redline::data
