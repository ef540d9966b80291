// A checkpoint on disk: everything that a run needs to continue as if nothing had happened. In checkpoints/:
//     step-N/model.safetensors: parameters and norm statistics, fp32, with torchvision's names
//     step-N/optimizer.safetensors: momentum (.momentum; .exp_avg, .exp_avg_sq), averages (.ema), loss scale
//     step-N/state.json: where training was, in which run, and checksums of the files
//     latest, best: links to complete checkpoints
// A checkpoint appears complete or not at all, and nothing of it is used before every byte was checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "metrics/records.h"

namespace redline::train {

inline constexpr const char *kModelFile = "model.safetensors", *kOptimizerFile = "optimizer.safetensors";

// The best evaluation so far.
struct Best {
  std::int64_t step = 0;
  double top1 = 0;
  std::string weights;     // "model" or "ema"
  std::int64_t epoch = 0;  // epochs done; 0 in checkpoints that do not say
  double elapsed = 0;      // seconds of training before it
};

// Where a run stands between two steps.
struct Progress {
  std::int64_t step = 0;  // updates done
  // The next step. After the last step of an epoch, step_in_epoch is the number of steps in it until the next
  // epoch begins, so that a pending evaluation is not forgotten.
  std::int64_t epoch = 0, step_in_epoch = 0;
  std::int64_t schedule_step = 0;  // step of the learning rate schedule: `step`, unless the batch has changed
  bool evaluated = false;          // the evaluation due after this step is done
  std::int64_t samples = 0, skipped_steps = 0, bad_in_a_row = 0;
  double step_seconds = 0;   // the device worked on steps
  metrics::Gap gap;          // and waited between them
  double epoch_seconds = 0;  // in the steps of this epoch, and waiting for them
  std::optional<Best> best;

  double elapsed() const { return step_seconds + gap.total(); }
};

// What was trained: enough to build the model, and to decide whether a run may resume from it.
struct Subject {
  std::string model;
  std::int64_t classes = 0, image_size = 0;
  std::int64_t images_per_step = 0, steps_per_epoch = 0, train_samples = 0;
  std::string config;                         // the run's options as TOML
  std::vector<std::string> class_names = {};  // by label; none: not known
};

struct CheckpointState {
  Progress progress;
  Subject subject;
};

// The persistent tensors of a run and a copy of their values.
class Snapshot {
 public:
  explicit Snapshot(backend::State& state);

  void take() { copy_->take(); }  // as StateCopy has it
  const std::vector<graph::Tensor>& tensors() const { return tensors_; }
  // Valid until the next call.
  std::span<const float> values(const graph::Tensor& tensor);

 private:
  std::vector<graph::Tensor> tensors_;
  std::unique_ptr<backend::StateCopy> copy_;
  std::vector<float> values_;
};

// A checkpoint that was found and checked.
struct Checkpoint {
  std::filesystem::path path;
  CheckpointState state;
};

std::string checkpoint_name(std::int64_t step);  // "step-500"
// The steps of the folders in `folder` with names of checkpoints, newest first; their content is not checked.
// Empty if there is no folder.
std::vector<std::int64_t> list_checkpoints(const std::filesystem::path& folder);

// Writes folder/step-N, synced to disk, and returns its size in bytes. Throws IoError and leaves nothing.
std::uint64_t write_checkpoint(const std::filesystem::path& folder, Snapshot& snapshot,
                               const CheckpointState& state);

// Updates the state of a checkpoint whose tensors are unchanged: that step was evaluated since. Throws
// IoError or DataError and leaves it as it was.
void update_checkpoint(const std::filesystem::path& path, const CheckpointState& state);

// Points `link`, next to the checkpoints, to one of them. The change is atomic: a reader finds the old target
// or the new one. Throws IoError.
void point(const std::filesystem::path& link, const std::string& name);

// Reads state.json only; the other files are not checked. Throws DataError or IoError naming the file.
CheckpointState read_state(const std::filesystem::path& path);

// Reads state.json and checks every file against it. Throws DataError or IoError naming the file and what is
// wrong with it.
Checkpoint open_checkpoint(const std::filesystem::path& path);

// Copies the tensors of a checkpoint into the state. Missing averages start from the tensors they average.
// Throws UsageError if a tensor of the model is missing or has another shape, listing both. Returns notes for
// people about what was missing or not used.
std::vector<std::string> restore(const Checkpoint& checkpoint, backend::State& state);

// The text of state.json, and back. `files` are those of the checkpoint with size and checksum.
struct FileSum {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
};
std::string state_text(const CheckpointState& state, const std::vector<FileSum>& files);
// Throws DataError, which does not name the file.
CheckpointState parse_state(const std::string& text, std::vector<FileSum>& files);

}  // namespace redline::train
