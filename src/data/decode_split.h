// Which rows of a batch a GPU decodes and which the CPU's threads, found while running. All go to the GPU
// as long as it keeps up with the trainer; when the trainer waits and the GPU is what is slow, some go to
// the threads, at most as many as make both sides take equally long.
#pragma once

#include <cstdint>

namespace redline::data {

// What one batch took. Seconds of threads are added up over all of them.
struct DecodeCost {
  int gpu_rows = 0;
  double gpu_seconds = 0;     // on the GPU, for gpu_rows
  double screen_seconds = 0;  // of threads that read and screened gpu_rows
  int cpu_rows = 0;
  double cpu_seconds = 0;  // of threads that read and decoded cpu_rows
};

// A value; used by one thread at a time.
class DecodeSplit {
 public:
  // With fixed, all rows are the GPU's for ever, so that two runs give the same bits.
  DecodeSplit(int threads, bool fixed) : threads_(threads), fixed_(fixed) {}

  // Rows for the CPU are spread evenly over the batch.
  bool cpu_row(int row) const;
  double cpu_share() const { return share_; }

  // After each batch: its cost, the time since the one before, and how long the trainer waited in it.
  void observe(const DecodeCost& cost, double period, double waited);

 private:
  // The share at which GPU and threads would be done with a batch at the same time.
  double balanced() const;

  int threads_;
  bool fixed_;
  double share_ = 0;
  // Seconds a row, smoothed; 0 before the first. Those of threads are divided by their number.
  double gpu_ = 0, screen_ = 0, cpu_ = 0;
};

}  // namespace redline::data
