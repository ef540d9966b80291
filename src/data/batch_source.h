// Where a trainer's batches come from: the interface between the data pipeline and the training loop. The
// loader (loader.h) implements it by decoding images; SyntheticBatches (below) returns random tensors, for
// measuring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/lease.h"
#include "data/host_memory.h"
#include "data/images/mix.h"

namespace redline::backend {
class DeviceImages;
}

namespace redline::data {

// A batch, on lease from its source: the memory is valid for as long as the lease is held, even after the
// source is destroyed, and is reused after that.
struct Batch {
  const std::uint8_t* images = nullptr;  // [N, H, W, 3] RGB, 0..255; null where device_images is not
  const std::int32_t* labels = nullptr;  // [N]; -1 marks a row that counts for nothing (padding)
  int count = 0;                         // rows whose label is not -1
  std::int64_t epoch = 0;
  std::int64_t step_in_epoch = 0;
  const backend::DeviceImages* device_images = nullptr;  // the images where a GPU decoded them; else null
  // Of mixed images, the second label (-1: none) and the weight of the first; null where nothing is mixed.
  const std::int32_t* other_labels = nullptr;  // [N]
  const float* label_weights = nullptr;        // [N], 0..1
  Lease lease = {};
};

// Used by one thread, the trainer's. Failures are thrown from the calls below, never from another thread.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  virtual int batch_size() const = 0;                  // N: rows in every batch
  virtual int image_size() const = 0;                  // H = W
  virtual std::int64_t batches_per_epoch() const = 0;  // on this rank; the same on every rank
  virtual std::int64_t samples() const = 0;            // in the whole data set, over all ranks
  virtual int classes() const = 0;

  // The size of images from the next epoch on, which start_epoch() must begin then. Memory is that of one
  // size, and of batches of another that are still on lease.
  virtual void set_image_size(int size) = 0;

  // Begins an epoch at one of its batches (to resume in the middle). Batches in flight are dropped.
  virtual void start_epoch(std::int64_t epoch, std::int64_t first_batch = 0) = 0;

  // The next batch of the epoch, or false at its end. Releases the previous `batch`, and waits if too many
  // batches are still on lease: holding one at a time is always possible, and a device may hold one more.
  // Throws DataError when more samples are bad than allowed, IoError when they cannot be read.
  virtual bool next(Batch& batch) = 0;

  // Waits until next() need not wait, or `stop` is true, which is asked now and then; false in that case.
  virtual bool wait([[maybe_unused]] const std::function<bool()>& stop) { return true; }

  // The part of the time spent on making batches so far that went into reading files. Empty if none are read.
  virtual std::optional<double> reading_share() const { return {}; }
};

struct SyntheticOptions {
  int batch_size = 64;
  int image_size = 224;
  int classes = 1000;
  std::int64_t batches_per_epoch = 100;
  int ranks = 1;
  std::uint64_t seed = 0;
  MixOptions mix;
  HostAllocator allocator;  // empty: ordinary memory
};

// Random images and labels, made once and returned in turn: a source without cost per step, for measuring
// everything else.
class SyntheticBatches final : public BatchSource {
 public:
  explicit SyntheticBatches(const SyntheticOptions& options);

  int batch_size() const override { return options_.batch_size; }
  int image_size() const override { return options_.image_size; }
  std::int64_t batches_per_epoch() const override { return options_.batches_per_epoch; }
  std::int64_t samples() const override;
  int classes() const override { return options_.classes; }
  void set_image_size(int size) override;
  void start_epoch(std::int64_t epoch, std::int64_t first_batch = 0) override;
  bool next(Batch& batch) override;

 private:
  void draw();

  static constexpr int kDistinct = 4;  // enough to keep one batch from staying in cache

  SyntheticOptions options_;
  std::vector<std::shared_ptr<BatchMemory>> batches_;  // kDistinct
  std::int64_t epoch_ = 0;
  std::int64_t step_ = 0;
};

}  // namespace redline::data
