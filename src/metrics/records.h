// What a run tells the world: the records that the trainer reports and every sink writes in its own form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace redline::metrics {

// One option of a run, for pages that compare runs.
struct Hyperparameter {
  std::string name;  // "optimizer.lr"
  std::variant<bool, double, std::string> value;
};

// Where a run goes on that was broken off. What was recorded after that point happens again, so every sink
// takes it back.
struct Resumed {
  std::int64_t step = 0;   // updates done
  bool evaluated = false;  // the evaluation after that step, if there was one, is not repeated
};

// Told once, before the first step.
struct RunInfo {
  std::string name;    // of the run folder
  std::string folder;  // where it is; empty when nothing is written
  std::string model, data, device, dtype, optimizer;
  std::int64_t classes = 0, image_size = 0;
  std::int64_t batch_size = 0;  // per forward pass of a rank
  std::int64_t ranks = 1;
  std::int64_t accumulate = 1;  // forward passes in a step
  std::int64_t parameters = 0;
  std::int64_t train_samples = 0, val_samples = 0;
  std::int64_t steps_per_epoch = 0;
  std::int64_t total_steps = 0;
  std::uint64_t seed = 0;
  std::string version, commit;  // of the program
  std::string started;          // UTC, ISO 8601
  std::string config;           // all options, as TOML
  std::vector<Hyperparameter> hyperparameters;
  std::optional<Resumed> resumed;
};

// One step: an update of the weights, from all its accumulated batches. Losses and accuracies are means over
// the step's samples, accuracies as fractions of one. `loss` and `gradient_norm` may be NaN or infinite.
struct Step {
  std::int64_t step = 0;   // updates done, this one included: 1, 2, …
  std::int64_t epoch = 0;  // from 0
  std::int64_t step_in_epoch = 0;
  double loss = 0, top1 = 0, top5 = 0;
  double learning_rate = 0;
  double gradient_norm = 0;  // of all parameters' gradients together, the loss scale taken out
  double loss_scale = 1;
  std::int64_t samples = 0;
  double seconds = 0;        // this step took, data wait included
  double data_seconds = 0;   // of these, spent waiting for data
  double epoch_seconds = 0;  // the steps of its epoch took so far, this one included
  double elapsed = 0;        // since training began, evaluations included
  bool skipped = false;      // a gradient was not finite, so the step changed nothing
  // With several ranks: the numbers above are over all of them, and of the step's seconds, those in which a
  // rank waited for others' numbers (the mean over ranks); which rank had the most work, and how many seconds
  // of it.
  int ranks = 1;
  double communication_seconds = 0;
  int slowest_rank = 0;
  double slowest_seconds = 0;
};

// One pass over every held-out sample.
struct Evaluation {
  std::int64_t step = 0;   // updates done before it
  std::int64_t epoch = 0;  // epochs done, the last one perhaps in part
  std::string weights;     // "model", or "ema" for the moving averages
  double loss = 0, top1 = 0, top5 = 0;
  std::int64_t samples = 0;
  double seconds = 0;
  double elapsed = 0;
};

// An RGB image to look at.
struct Picture {
  std::string tag;
  std::int64_t step = 0;
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  // row by row, 3 bytes a pixel
};

// How the values of one tensor are spread.
struct Histogram {
  struct Bucket {
    double left = 0, right = 0;
    std::int64_t count = 0;
  };
  std::string tag;  // "weights/fc.bias"
  std::int64_t step = 0;
  std::vector<Bucket> buckets;  // rising, each beginning where the one before ends
};

// A checkpoint that was written, or could not be. Told a few steps after the one it holds.
struct Checkpoint {
  std::int64_t step = 0;
  std::string name;  // of its folder
  std::uint64_t bytes = 0;
  bool best = false;            // its evaluation was the best so far
  double stall_seconds = 0;     // that training stood still for it
  double interval_seconds = 0;  // since the one before it
  double write_seconds = 0;     // until it was on the disk, while training went on
  double elapsed = 0;           // when it was taken
  std::string error;            // why it could not be written; empty when it was
};

// Something that a person should know about.
struct Notice {
  std::int64_t step = 0;
  std::string what;  // in one word, for programs: "loss_spike"
  std::string text;  // for people
};

// Told once, after the last step, however the run ended.
struct End {
  std::string reason;  // "finished", "interrupted", "failed"
  std::string detail;  // what failed or which signal; empty when finished
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::int64_t skipped_steps = 0;
  double seconds = 0;                // from first step to last, evaluations included
  double train_seconds = 0;          // of these, in training steps
  double data_seconds = 0;           // of these, waiting for data
  double communication_seconds = 0;  // of these, waiting for other ranks
  std::string ranks;                 // how fast they were; empty for one
};

}  // namespace redline::metrics
