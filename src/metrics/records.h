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

// Where a resumed run continues. What was recorded after that point happens again, so every sink
// removes it.
struct Resumed {
  std::int64_t step = 0;   // updates done
  bool evaluated = false;  // the evaluation after that step, if there was one, is not repeated
};

// Told once, before the first step.
struct RunInfo {
  std::string name;    // of the run folder
  std::string folder;  // where it is; empty when nothing is written
  std::string model, data, device, dtype, optimizer;
  std::string why_dtype;  // for people; empty: not said
  std::int64_t classes = 0, image_size = 0;
  std::vector<std::string> class_names;  // by label; none: not known
  std::int64_t batch_size = 0;           // per forward pass of a rank
  std::int64_t ranks = 1;
  std::int64_t accumulate = 1;  // forward passes in a step
  std::int64_t parameters = 0;
  std::int64_t train_samples = 0, val_samples = 0;
  std::int64_t steps_per_epoch = 0;
  std::int64_t total_steps = 0;
  std::uint64_t seed = 0;
  double label_smoothing = 0;   // in the training loss; an evaluation's loss is without it
  std::string version, commit;  // of the program
  std::string started;          // UTC, ISO 8601
  std::string config;           // all options, as TOML
  std::vector<Hyperparameter> hyperparameters;
  std::optional<Resumed> resumed;
};

// "loss", or "loss (label smoothing 0.1)": how a training loss is named where an evaluation's is near.
std::string training_loss_name(const RunInfo& info);

// Time in which the device that trains stood still, in seconds, by what it waited for.
struct Gap {
  double data = 0;  // a batch that was not there yet
  double host = 0;  // the host: it launches work, writes records, and does all that has no line of its own
  double exchange = 0;    // other ranks, between steps
  double evaluation = 0;  // an evaluation, which uses the device for something else
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
  double gradient_norm = 0;  // of all parameters' gradients together, the loss scale taken out
  double loss_scale = 1;
  std::int64_t samples = 0;
  // By the clock of the device that ran it. The times of all steps and the gaps before them add up to the
  // time that the run took.
  double seconds = 0;        // the device worked on this step
  Gap gap;                   // since the step before it, and between its batches
  double epoch_seconds = 0;  // of its epoch so far, this step and all gaps but evaluations included
  double elapsed = 0;        // from the beginning of training to the end of this step, evaluations included
  bool skipped = false;      // a gradient was not finite, so the step changed nothing

  // Stalls included, as a user waits for them; evaluations are not part of training.
  double training_seconds() const { return seconds + gap.total() - gap.evaluation; }
  double images_per_second() const;
  double data_wait() const;  // part of training_seconds() in which the device waited for a batch, 0 to 1

  // With several ranks: losses and accuracies are over all of them, times are this rank's. Of the step's
  // seconds, those in which a rank waited for others' numbers (the mean over ranks); which rank had the most
  // work, and how many seconds of it.
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
  // In one word, for programs: "loss_spike", "straggler", "image_size"; at the end of a run "disturbed" (its
  // times are not those of a quiet machine) and "bound" (what sets its speed).
  std::string what;
  std::string text;  // for people
};

// An accuracy that was to end the run, and the best evaluation.
struct Target {
  double top1 = 0;                   // wanted
  double best = 0;                   // reached
  std::int64_t step = 0, epoch = 0;  // of the best evaluation; an epoch of 0: not known
  double seconds = 0;                // of training before it, evaluations included

  bool reached() const { return best >= top1; }
};

// Told once, after the last step, however the run ended.
struct End {
  std::string reason;  // "finished", "interrupted", "failed"
  std::string detail;  // what failed or which signal; empty when finished
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::int64_t skipped_steps = 0;
  double seconds = 0;                // from first step to last, evaluations included
  double step_seconds = 0;           // of these, the device worked on steps
  Gap gap;                           // and waited between them; together all of `seconds`
  double communication_seconds = 0;  // of step_seconds, waiting for other ranks
  std::string ranks;                 // how fast they were; empty for one
  // What the device of this process used since it began to train, evaluations included, where that is
  // counted; and the steps and images that it trained in that time: fewer than above in a run that was
  // resumed or has several ranks.
  std::optional<double> energy_j;
  std::int64_t energy_steps = 0, energy_samples = 0;
  std::optional<Target> target = {};  // of a run that has one

  double train_seconds() const { return seconds - gap.evaluation; }
};

}  // namespace redline::metrics
