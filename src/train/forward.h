// Runs a trained network forward: shared by evaluation and prediction.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "data/loader.h"
#include "graph/loss_sums.h"
#include "train/trained_model.h"

namespace redline::train {

struct ForwardOptions {
  std::int64_t batch_size = 32, workers = 0;
  std::optional<std::int64_t> image_size;  // unset: as in training, else 224
  std::optional<double> crop_pct;          // unset: likewise, else 0.875
  DeviceConfig device;                     // without a type: that of training if the device supports it
  double max_bad = DataConfig{}.max_bad;
};

// Used by one thread.
class ForwardPass {
 public:
  // Opens the device, compiles the network and loads the weights. Throws UsageError or UnavailableError.
  // `stop` must outlive it.
  ForwardPass(const TrainedModel& model, const ForwardOptions& options, const std::atomic<bool>& stop);
  ~ForwardPass();

  std::string device() const;
  std::string dtype() const { return dtype_; }
  std::int64_t image_size() const { return config_.model.image_size; }
  std::size_t classes() const;

  // Every record once, in order, as batches for run().
  std::unique_ptr<data::Loader> batches(std::shared_ptr<const data::RecordSource> records) const;

  // The logits of a batch, [batch, classes], valid until the next call. Empty once `stop` was raised, which
  // also ends a long batch.
  std::optional<std::span<const float>> run(const data::Batch& batch);
  // Loss and accuracy over all batches so far.
  const graph::LossSums& sums() const { return sums_; }

 private:
  Config config_;
  const std::atomic<bool>& stop_;
  std::unique_ptr<backend::Backend> backend_;
  std::string dtype_;
  std::unique_ptr<backend::Executable> executable_;
  graph::LossSums sums_;
  std::vector<float> logits_;
};

}  // namespace redline::train
