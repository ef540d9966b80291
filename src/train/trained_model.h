// A trained network, loaded from a run folder, a checkpoint, or a file (safetensors or PyTorch's).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "train/config.h"
#include "weights/model_weights.h"

namespace redline::train {

struct TrainedModel {
  std::filesystem::path path;  // of the weights that were read
  weights::ModelWeights weights;
  // The configuration of its training, as far as known: all of it for a run or checkpoint; for a file, what
  // Redline stored with the weights.
  std::optional<Config> config;
  std::optional<std::int64_t> image_size;
  double crop_pct = DataConfig{}.crop_pct;
  std::int64_t step = 0;  // updates made; 0 when it is not known
};

// Reads a file of weights, a checkpoint's folder, or a run's folder (its latest checkpoint). With
// `averages`, the moving averages of a run that kept them. Throws UsageError for a path that is none of
// these, DataError for damaged or foreign weights, IoError.
TrainedModel load_trained(const std::filesystem::path& path, bool averages);

// The metadata of exported weights, which load_trained() reads.
weights::Metadata export_metadata(const TrainedModel& model);

// load_trained() for --init. Throws UsageError when the weights are of another model.
TrainedModel load_initial(const std::filesystem::path& path, const std::string& model);

// Copies the weights of a file (or run, or checkpoint) into a state and its averages, as a start for
// training. A last layer for other classes keeps its initial values, except for the rows of classes that both
// have by name (class_names, by label; none: unknown). Returns a line for people that says what was done.
// Throws DataError listing what does not match.
std::string initialise_from(const std::filesystem::path& path, const std::string& model,
                            const std::vector<std::string>& class_names, backend::State& state);

// The tensor that `name` is the moving average of; empty if it is not an average.
std::string averaged(const backend::State& state, const std::string& name);

// Copies weights into a state that has the same tensors.
void write_weights(const weights::ModelWeights& weights, backend::State& state);

}  // namespace redline::train
