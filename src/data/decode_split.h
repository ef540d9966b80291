// Decides while running which rows of a batch the GPU decodes and which the CPU's threads. Decoding on the
// GPU slows down its training step, which waiting times do not show. So the decision is based on the time
// between batches, measured with everything on the GPU, with everything on the threads, and with the rows
// divided so that both finish at the same time. The fastest is kept, and compared with the others again
// later.
#pragma once

#include <cstdint>
#include <vector>

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
  // With fixed, the GPU always decodes all rows, so that two runs give the same bits.
  DecodeSplit(int threads, bool fixed);

  // Rows for the CPU are spread evenly over the batch.
  bool cpu_row(int row) const;
  double cpu_share() const { return share_; }

  // After each batch: its cost, and the time since the one before.
  void observe(const DecodeCost& cost, double period);

 private:
  // In this order, which starts with the safe choices; after keep, those that may be better are tried again.
  enum class Stage { sample, both, gpu, cpu, keep };

  int stage_length() const;
  void note_costs(const DecodeCost& cost);
  void end_stage(int rows);
  void enter(Stage stage);
  bool worth_trying(double share, int rows) const;
  // The CPU's share at which GPU and threads would finish a batch at the same time.
  double balanced() const;
  // Seconds per row that loading takes at a share, if nothing else limits it.
  double loading(double share) const;

  int threads_;
  bool fixed_;
  double share_ = 0;
  Stage stage_ = Stage::sample;
  int batches_ = 0;                          // of this stage so far
  std::vector<double> periods_;              // of its last batches
  double best_share_ = 0, best_period_ = 0;  // of the stages measured so far; 0: none
  int keep_ = 512;                           // batches that the next choice is kept for
  // Seconds a row, smoothed; 0 before the first. Those of threads are divided by their number.
  double gpu_ = 0, screen_ = 0, cpu_ = 0;
};

}  // namespace redline::data
