// A checkpoint on disk: all that a run needs to continue as if nothing had happened.
//     checkpoints/step-N/model.safetensors      parameters and norm statistics, fp32, by torchvision's names
//     checkpoints/step-N/optimizer.safetensors  momentum (.momentum; .exp_avg, .exp_avg_sq), averages (.ema),
//     loss scale checkpoints/step-N/state.json             where training stood, of what run, and checksums
//     of the files checkpoints/latest, checkpoints/best      links to complete ones
// A checkpoint appears whole or not at all, and nothing of it is used before every byte was checked.
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
  // The next step. After the last one of an epoch, step_in_epoch is the number of steps in it until the next
  // epoch begins, so that an evaluation that is still to come is not forgotten.
  std::int64_t epoch = 0, step_in_epoch = 0;
  std::int64_t schedule_step = 0;  // what the learning rate follows: `step`, unless the batch has changed
  bool evaluated = false;          // the evaluation that is due after this step is done
  std::int64_t samples = 0, skipped_steps = 0, bad_in_a_row = 0;
  double step_seconds = 0;   // the device worked on steps
  metrics::Gap gap;          // and waited between them
  double epoch_seconds = 0;  // in the steps of this epoch, and waiting for them
  std::optional<Best> best;

  double elapsed() const { return step_seconds + gap.total(); }
};

// What was trained: enough to build the model, and to tell whether a run may go on from it.
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
// Steps of the folders in `folder` that are named as checkpoints are, newest first; whether they are whole is
// not looked at. Empty when there is no folder.
std::vector<std::int64_t> list_checkpoints(const std::filesystem::path& folder);

// Writes folder/step-N, synced to the disk, and gives its bytes. Throws IoError; nothing is left then.
std::uint64_t write_checkpoint(const std::filesystem::path& folder, Snapshot& snapshot,
                               const CheckpointState& state);

// Writes what is known now into a checkpoint whose tensors are those of this state already: an evaluation of
// that step was done since. Throws IoError or DataError; it is then as it was.
void update_checkpoint(const std::filesystem::path& path, const CheckpointState& state);

// Makes `link`, beside the checkpoints, name one of them. It is replaced at once: whoever follows it finds
// the old target or the new one. Throws IoError.
void point(const std::filesystem::path& link, const std::string& name);

// What state.json says; the other files are not looked at. Throws DataError or IoError naming the file.
CheckpointState read_state(const std::filesystem::path& path);

// Reads state.json and checks every file against it. Throws DataError or IoError naming the file and what is
// wrong with it.
Checkpoint open_checkpoint(const std::filesystem::path& path);

// Puts the tensors of a checkpoint into the state. Averages that it lacks begin as what they average. Throws
// UsageError when a tensor of the model is missing or has another shape, listing both; gives notes for people
// about what was made up or left out.
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
