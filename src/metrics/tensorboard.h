// A run for TensorBoard, in an event file next to metrics.jsonl.
//
// Every step: Loss/train, acc1/train and acc5/train (percent), lr, images_per_second, data_wait (percent of
// the step), loss_scale, grad_norm. Every evaluation: Loss/val, acc1/val, acc5/val, and the same with val_ema
// for the moving averages. Every epoch: epoch_time (seconds in training steps). Once: the configuration as
// text, the options and the final numbers for the hparams page, charts with training and validation together,
// and the first batch as a picture. With the trainer's histograms: weights/<name> and gradients/<name>.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "base/append_file.h"
#include "metrics/recorder.h"

namespace redline::metrics {

// Writes each record as it comes; what a full disk refuses is kept, as in AppendFile. Throws IoError if the
// file cannot be created, or in the end not be written.
class TensorBoardSink final : public Sink {
 public:
  explicit TensorBoardSink(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void begin(const RunInfo& info) override;
  void step(const Step& step) override;
  void evaluation(const Evaluation& evaluation) override;
  void picture(const Picture& picture) override;
  void histogram(const Histogram& histogram) override;
  void flush() override {
    if (file_) file_->flush();
  }
  void end(const End& end) override;

 private:
  void append(const std::string& event);  // serialised

  std::filesystem::path folder_;
  std::optional<AppendFile> file_;  // from begin() on
  RunInfo info_;
  bool stepped_ = false;  // a step is in the file
  std::int64_t last_step_ = 0;
};

}  // namespace redline::metrics
