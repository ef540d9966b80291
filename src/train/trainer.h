// The training loop: batches in, updates of the weights, records out. It knows plans, a backend, batch
// sources and the recorder, and nothing below them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "data/batch_source.h"
#include "metrics/recorder.h"
#include "train/config.h"
#include "train/schedule.h"
#include "train/setup.h"

namespace redline::train {

// Updates in an epoch: batches left over after whole groups of --accumulate are not used. Throws UsageError
// when an epoch has no whole group.
std::int64_t steps_per_epoch(const Config& config, const data::BatchSource& source);

class Trainer {
 public:
  // Compiles both plans on one state and gives the weights their initial values, a function of the seed
  // alone. `config` is resolved and valid. Everything passed by reference outlives the trainer; `val` may be
  // null.
  Trainer(const Config& config, const Plans& plans, backend::Backend& backend, data::BatchSource& train,
          data::BatchSource* val, metrics::Recorder& recorder);

  // Trains to the end of the schedule, evaluating on the way; false when `stop` was raised first. A step
  // whose loss is not finite leaves the weights alone; more than config.run.max_bad_steps of them in a row
  // throw UsageError. Called once.
  bool run(const std::atomic<bool>& stop);

  // What was done so far, to be reported as the end of the run.
  metrics::End summary(std::string reason, std::string detail) const;

  std::int64_t total_steps() const { return schedule_.total_steps; }
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  std::int64_t parameters() const;  // trainable values
  backend::State& state() { return *state_; }
  backend::ExecutableMemory memory() const { return train_->memory(); }

  // One pass over every sample of `val` with the model's weights, or with their moving averages. Empty when
  // `stop` was raised before it was done. The weights are the same after it as before.
  std::optional<metrics::Evaluation> evaluate(bool averages, const std::atomic<bool>& stop);

 private:
  void initialise();
  void step(std::int64_t epoch, std::int64_t step_in_epoch);
  void write_scalars(double learning_rate, bool first_of_step);
  void count_bad(bool bad, double loss);
  bool evaluate_all(const std::atomic<bool>& stop);
  void exchange_averages();  // swaps every averaged tensor with its average

  Config config_;
  metrics::Recorder& recorder_;
  data::BatchSource& train_source_;
  data::BatchSource* val_source_;
  std::int64_t steps_per_epoch_;
  Schedule schedule_;
  std::shared_ptr<backend::State> state_;
  std::unique_ptr<backend::Executable> train_, eval_;  // eval_ only with val_source_

  Stopwatch since_start_;
  std::int64_t steps_ = 0, epochs_begun_ = 0, samples_ = 0, skipped_ = 0, bad_in_a_row_ = 0;
  double train_seconds_ = 0, data_seconds_ = 0;
};

}  // namespace redline::train
