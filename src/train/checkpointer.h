// Writes a run's checkpoints while training goes on. The training thread only copies the state into memory
// that is used again; a thread of its own does the rest: files, checksums, syncing, `latest` and `best`, and
// removing what is old.
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
  std::filesystem::path folder;  // runs/<name>/checkpoints; made when the first is written
  Interval every;
  std::int64_t keep = 3;  // newest ones that stay; the best stays too
  Subject subject;
  std::optional<Progress> resumed;  // of the checkpoint in `folder` that training went on from
};

// Used by one thread, the trainer's.
class Checkpointer {
 public:
  // Sets the memory for copies of the state aside, which outlives the last save().
  Checkpointer(CheckpointerOptions options, backend::State& state);
  // Waits for the write under way, unless abandon() was called.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Whether a checkpoint is wanted after this step. While one is still being written none is: it is wanted as
  // soon as that is done, so a slow file system makes checkpoints rarer and does not hold up training.
  bool due(const Progress& progress, bool epoch_done);

  // Copies the state and returns; a write still under way is waited for. `best` is pointed to it when its
  // best evaluation is of this very step. Of a step that is on the disk already only the progress is written,
  // where an evaluation was done since. `stall` began when training stopped for this.
  void save(const Progress& progress, const Stopwatch& stall);

  // What the writer has done since this was last asked, failures included. Never waits.
  std::vector<metrics::Checkpoint> finished();

  // Waits until nothing is being written; false when that takes longer.
  bool wait(double seconds);
  // The destructor will not wait: for a file system that no longer answers.
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
