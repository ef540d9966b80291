// Which rows of a batch a GPU decodes and which the CPU's threads, found while running. What a GPU decodes
// takes time from the step that it trains, which no count of waiting shows, so the split goes by what counts:
// the time between batches, measured with everything on the GPU, with everything on the threads, and with
// both sharing the rows so that they are done at the same time. The fastest is kept, and tried against the
// others again later.
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
  // With fixed, all rows are the GPU's for ever, so that two runs give the same bits.
  DecodeSplit(int threads, bool fixed);

  // Rows for the CPU are spread evenly over the batch.
  bool cpu_row(int row) const;
  double cpu_share() const { return share_; }

  // After each batch: its cost, and the time since the one before.
  void observe(const DecodeCost& cost, double period);

 private:
  // In this order, which begins with what cannot be slow; after keep come those that may be better again.
  enum class Stage { sample, both, gpu, cpu, keep };

  int stage_length() const;
  void note_costs(const DecodeCost& cost);
  void end_stage(int rows);
  void enter(Stage stage);
  bool worth_trying(double share, int rows) const;
  // The share at which GPU and threads would be done with a batch at the same time.
  double balanced() const;
  // Seconds that loading takes a row at a share, if nothing else were in the way.
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
