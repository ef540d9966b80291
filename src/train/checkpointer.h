// Writes a run's checkpoints during training. The training thread only copies the state into reserved memory;
// a separate thread does the rest: files, checksums, syncing, `latest` and `best`, and removing old ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "metrics/records.h"
#include "train/checkpoint.h"
#include "train/interval.h"

namespace redline::train {

struct CheckpointerOptions {
  std::filesystem::path folder;  // runs/<name>/checkpoints; created when the first is written
  Interval every;
  std::int64_t keep = 3;  // newest ones to keep; the best is kept too
  Subject subject;
  std::optional<Progress> resumed;  // of the checkpoint in `folder` that training resumed from
};

// Used by one thread, the trainer's.
class Checkpointer {
 public:
  // Reserves the memory for copies of the state. The state must outlive the last save().
  Checkpointer(CheckpointerOptions options, backend::State& state);
  // Waits for the write under way, unless abandon() was called.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Whether a checkpoint is due after this step. While one is still being written, none is: it becomes due
  // when that is done, so a slow file system makes checkpoints rarer but does not delay training.
  bool due(const Progress& progress, bool epoch_done);

  // Copies the state and returns; waits first if a write is still under way. `best` points to it if the best
  // evaluation is of this step. If the step is already on disk, only the progress is written, and only if it
  // was evaluated since. `stall` began when training paused for this.
  void save(const Progress& progress, const Stopwatch& stall);

  // What the writer has done since the last call, failures included. Never waits.
  std::vector<metrics::Checkpoint> finished();

  // Waits until nothing is being written; false if that takes longer than `seconds`.
  bool wait(double seconds);
  // Makes the destructor not wait: for a file system that no longer responds.
  void abandon();

  std::optional<std::int64_t> newest() const;  // step of the last complete one
  const std::filesystem::path& folder() const { return options_.folder; }

 private:
  struct Writer;

  CheckpointerOptions options_;
  std::shared_ptr<Writer> writer_;  // shared with its thread, which outlives this after abandon()
  Stopwatch since_saved_;
  bool late_ = false, warned_slow_ = false;
};

}  // namespace redline::train
