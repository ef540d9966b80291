// The loader: threads that read, decode and augment samples into a ring of fixed batches, ahead of the
// trainer.
//
// Its memory is allocated once. What a batch holds depends on the data, the seed and the epoch alone, never
// on timing. A sample that cannot be read or decoded is named in the log once and counted; training takes
// another sample in its place (chosen by seed, epoch and sample), evaluation leaves the row out (label -1).
// More bad samples than allowed end the run with DataError.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/augment.h"
#include "data/batch_source.h"
#include "data/decode.h"
#include "data/host_memory.h"
#include "data/record_source.h"

namespace redline::data {

struct LoaderOptions {
  int batch_size = 64;  // of this rank
  int rank = 0;
  int ranks = 1;
  int threads = 1;  // workers; the trainer's thread does no loading
  int slots = 4;    // batches in the ring: one with the trainer, the others being filled or waiting
  std::uint64_t seed = 0;
  TransformOptions transform;  // transform.train also decides order and padding
  DecodeLimits limits;
  double max_bad = 0.001;   // share of the samples that may be bad
  HostAllocator allocator;  // empty: ordinary memory
};

struct BadSample {
  std::string name;
  std::string reason;
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
  void start_epoch(std::int64_t epoch, std::int64_t first_batch = 0) override;
  bool next(Batch& batch) override;
  double waited_seconds() const override;

  // Each bad sample found so far, once, in the order of the data set. Any thread.
  std::vector<BadSample> bad_samples() const;

 private:
  class Pool;
  std::unique_ptr<Pool> pool_;
};

}  // namespace redline::data
