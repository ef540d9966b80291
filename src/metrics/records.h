// The records of a run: the trainer reports them, and every sink writes them in its own format.
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

// Where a resumed run continues. What was recorded after that point happens again, so every sink
// removes it.
struct Resumed {
  std::int64_t step = 0;   // updates done
  bool evaluated = false;  // the evaluation after that step, if there was one, is not repeated
};

// Reported once, before the first step.
struct RunInfo {
  std::string name;    // of the run folder
  std::string folder;  // its path; empty if nothing is written
  std::string model, data, device, dtype, optimizer;
  std::string why_dtype;  // for people; empty: not shown
  std::int64_t classes = 0, image_size = 0;
  std::vector<std::string> class_names;  // by label; empty: unknown
  std::int64_t batch_size = 0;           // per forward pass of a rank
  std::int64_t ranks = 1;
  std::int64_t accumulate = 1;  // forward passes in a step
  std::int64_t parameters = 0;
  std::int64_t train_samples = 0, val_samples = 0;
  std::int64_t steps_per_epoch = 0;
  std::int64_t total_steps = 0;
  std::uint64_t seed = 0;
  double label_smoothing = 0;   // of the training loss; evaluations are without it
  std::string version, commit;  // of the program
  std::string started;          // UTC, ISO 8601
  std::string config;           // all options, as TOML
  std::vector<Hyperparameter> hyperparameters;
  std::optional<Resumed> resumed;
};

// "loss", or "loss (label smoothing 0.1)": names a training loss shown next to an evaluation's.
std::string training_loss_name(const RunInfo& info);

// Idle time of the training device, in seconds, by what it waited for.
struct Gap {
  double data = 0;        // a batch that was not ready
  double host = 0;        // the host, which launches work and writes records; anything not listed below
  double exchange = 0;    // other ranks, between steps
  double evaluation = 0;  // an evaluation on the device
  double checkpoint = 0;  // a copy of the state for a checkpoint

  double total() const { return data + host + exchange + evaluation + checkpoint; }
  Gap& operator+=(const Gap& other);
};

// One step: an update of the weights, from all its accumulated batches. Losses and accuracies are means over
// the step's samples, accuracies as fractions of one. `loss` and `gradient_norm` may be NaN or infinite.
struct Step {
  std::int64_t step = 0;   // updates done, this one included: 1, 2, …
  std::int64_t epoch = 0;  // from 0
  std::int64_t step_in_epoch = 0;
  double loss = 0, top1 = 0, top5 = 0;
  double learning_rate = 0;
  double gradient_norm = 0;  // over all parameters, without the loss scale
  double loss_scale = 1;
  std::int64_t samples = 0;
  // By the device's clock. The times of all steps and the gaps before them add up to the time of the run.
  double seconds = 0;        // the device worked on this step
  Gap gap;                   // since the step before it, and between its batches
  double epoch_seconds = 0;  // of its epoch so far, including this step and all gaps except evaluations
  double elapsed = 0;        // from the start of training to the end of this step, evaluations included
  bool skipped = false;      // a gradient was not finite, so the step changed nothing

  // Includes stalls but not evaluations.
  double training_seconds() const { return seconds + gap.total() - gap.evaluation; }
  double images_per_second() const;
  double data_wait() const;  // fraction of training_seconds() in which the device waited for a batch

  // With several ranks, losses and accuracies are over all of them and times are this rank's.
  // communication_seconds: part of the step's seconds in which ranks waited for each other's data, the mean
  // over ranks. slowest_rank, slowest_seconds: the rank that computed longest, and for how long.
  int ranks = 1;
  double communication_seconds = 0;
  int slowest_rank = 0;
  double slowest_seconds = 0;
};

// One pass over every held-out sample.
struct Evaluation {
  std::int64_t step = 0;   // updates done before it
  std::int64_t epoch = 0;  // epochs done, the last one perhaps partly
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
  std::vector<std::uint8_t> rgb;  // row by row, 3 bytes per pixel
};

// The distribution of a tensor's values.
struct Histogram {
  struct Bucket {
    double left = 0, right = 0;
    std::int64_t count = 0;
  };
  std::string tag;  // "weights/fc.bias"
  std::int64_t step = 0;
  std::vector<Bucket> buckets;  // ascending, each starting where the one before ends
};

// A checkpoint that was written, or failed to be. Reported a few steps after the one it holds.
struct Checkpoint {
  std::int64_t step = 0;
  std::string name;  // of its folder
  std::uint64_t bytes = 0;
  bool best = false;            // its evaluation was the best so far
  double stall_seconds = 0;     // that training stopped for it
  double interval_seconds = 0;  // since the one before it
  double write_seconds = 0;     // until it was on disk, in the background
  double elapsed = 0;           // when it was taken
  std::string error;            // why it could not be written; empty if it was
};

// Something that people should know.
struct Notice {
  std::int64_t step = 0;
  // In one word, for programs: "loss_spike", "straggler", "image_size"; at the end of a run "disturbed" (its
  // times are not those of a quiet machine) and "bound" (what sets its speed).
  std::string what;
  std::string text;  // for people
};

// The accuracy that was to end the run, and the best evaluation.
struct Target {
  double top1 = 0;                   // wanted
  double best = 0;                   // reached
  std::int64_t step = 0, epoch = 0;  // of the best evaluation; epoch 0: unknown
  double seconds = 0;                // of the run until then, evaluations included

  bool reached() const { return best >= top1; }
};

// The best evaluation of a run, of the weights or their averages.
struct Best {
  std::string weights;  // as in Evaluation
  double top1 = 0;
  std::int64_t epoch = 0;  // 0: unknown
};

// Reported once, after the last step, however the run ended.
struct End {
  std::string reason;  // "finished", "interrupted", "failed"
  std::string detail;  // what failed or which signal; empty when finished
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::int64_t skipped_steps = 0;
  double seconds = 0;                // from first step to last, evaluations included
  double step_seconds = 0;           // of these, the device worked on steps
  Gap gap;                           // and was idle between them; the two add up to `seconds`
  double communication_seconds = 0;  // of step_seconds, waiting for other ranks
  std::string ranks;                 // how fast they were; empty for one
  // The energy that this process's device used since training began, evaluations included, if it is counted;
  // and the steps and images of that time, fewer than above if the run was resumed or has several ranks.
  std::optional<double> energy_j;
  std::int64_t energy_steps = 0, energy_samples = 0;
  std::optional<Target> target = {};  // if the run has one
  std::optional<Best> best = {};      // before the run was resumed, too

  double train_seconds() const { return seconds - gap.evaluation; }
};

}  // namespace redline::metrics
