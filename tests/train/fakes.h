// What the trainer talks to, for tests: the reference backend, batches made from a list of samples, and a
// sink that keeps records.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/random.h"
#include "data/batch_source.h"
#include "metrics/recorder.h"

namespace redline::train {

inline std::unique_ptr<backend::Backend> reference_backend() {
  backend::DeviceOptions options;
  options.device = "reference";
  return backend::make_backend(options);
}

// Small random images with labels, the same for the same seed; handed out in order, the last batch padded.
class FakeBatches final : public data::BatchSource {
 public:
  FakeBatches(int samples, int batch_size, int image_size, int classes, std::uint64_t seed)
      : samples_(samples), batch_(batch_size), size_(image_size), classes_(classes) {
    for (int i = 0; i < samples; ++i) {  // a sample is the same however many there are
      Random random(seed, static_cast<std::uint64_t>(i));
      labels_.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(classes))));
      for (std::size_t k = 0; k < row(); ++k) pixels_.push_back(static_cast<std::uint8_t>(random.below(256)));
    }
    images_out_.resize(static_cast<std::size_t>(batch_) * row());
    labels_out_.resize(static_cast<std::size_t>(batch_));
  }

  int batch_size() const override { return batch_; }
  int image_size() const override { return size_; }
  std::int64_t batches_per_epoch() const override { return (samples_ + batch_ - 1) / batch_; }
  std::int64_t samples() const override { return samples_; }
  int classes() const override { return classes_; }
  void set_image_size(int size) override { size_ = size; }
  void start_epoch(std::int64_t epoch, std::int64_t first_batch) override {
    epoch_ = epoch;
    next_ = first_batch;
    ++epochs_started;
  }
  bool next(data::Batch& batch) override {
    if (next_ == batches_per_epoch()) return false;
    const int first = repeat_first_batch ? 0 : static_cast<int>(next_) * batch_,
              count = std::min(batch_, samples_ - first);
    std::fill(images_out_.begin(), images_out_.end(), std::uint8_t{0});
    std::fill(labels_out_.begin(), labels_out_.end(), -1);
    std::copy_n(pixels_.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(first) * row()),
                static_cast<std::size_t>(count) * row(), images_out_.begin());
    std::copy_n(labels_.begin() + first, count, labels_out_.begin());
    batch = {images_out_.data(), labels_out_.data(), count, epoch_, next_++};
    if (on_next) on_next();
    return true;
  }

  // From this batch on, none is ready before `stop` is true.
  bool wait(const std::function<bool()>& stop) override {
    if (next_ < hangs_from) return true;
    if (on_hang) on_hang();
    return !stop();
  }

  std::function<void()> on_next;  // called for every batch handed out
  std::function<void()> on_hang;
  std::int64_t hangs_from = std::numeric_limits<std::int64_t>::max();
  bool repeat_first_batch = false;
  int epochs_started = 0;

 private:
  std::size_t row() const { return static_cast<std::size_t>(size_) * static_cast<std::size_t>(size_) * 3; }

  int samples_, batch_, size_, classes_;
  std::vector<std::uint8_t> pixels_, images_out_;
  std::vector<std::int32_t> labels_, labels_out_;
  std::int64_t epoch_ = 0, next_ = 0;
};

struct Records {
  std::vector<metrics::Step> steps;
  std::vector<metrics::Evaluation> evaluations;
};

class KeepingSink final : public metrics::Sink {
 public:
  explicit KeepingSink(Records& records) : records_(records) {}
  void step(const metrics::Step& step) override { records_.steps.push_back(step); }
  void evaluation(const metrics::Evaluation& evaluation) override {
    records_.evaluations.push_back(evaluation);
  }

 private:
  Records& records_;
};

}  // namespace redline::train
