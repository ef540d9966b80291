// The order of samples. The order of an epoch is a function of (seed, epoch) only; a global batch is a
// stretch of that order, and a rank takes its part of it. So any number of ranks and threads sees the same
// samples in the same batches, and training can continue from any batch.
#pragma once

#include <cstdint>
#include <vector>

namespace redline::data {

struct SamplerOptions {
  std::int64_t samples = 0;  // in the data set
  int batch_size = 1;        // of this rank
  int rank = 0;
  int ranks = 1;
  std::uint64_t seed = 0;
  bool train =
      true;  // shuffled, and a last global batch that is short is left out; else in order, each sample once
};

// A value; used by one thread.
class Sampler {
 public:
  // Throws UsageError when training has fewer samples than one global batch.
  explicit Sampler(const SamplerOptions& options);

  std::int64_t batches_per_epoch() const;

  void start_epoch(std::int64_t epoch);

  // The sample in a row of a batch of this rank, or -1 for padding after the last sample of an evaluation.
  std::int64_t sample(std::int64_t batch, int row) const;

 private:
  SamplerOptions options_;
  std::vector<std::uint32_t> order_;  // empty when not shuffled
};

}  // namespace redline::data
