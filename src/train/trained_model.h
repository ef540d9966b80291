// A network that was trained before, wherever its weights are: a run folder, a checkpoint, or a file,
// safetensors or PyTorch's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "train/config.h"
#include "weights/model_weights.h"

namespace redline::train {

struct TrainedModel {
  std::filesystem::path path;  // of the weights that were read
  weights::ModelWeights weights;
  // What it was trained with, as far as it is known: all of it for a run or checkpoint; for a file, what
  // Redline wrote beside the weights.
  std::optional<Config> config;
  std::optional<std::int64_t> image_size;
  double crop_pct = DataConfig{}.crop_pct;
  std::int64_t step = 0;  // updates made; 0 when it is not known
};

// Reads a file of weights, a checkpoint's folder, or a run's folder (its latest checkpoint). With
// `averages`, the moving averages of a run that kept them. Throws UsageError for a path that is none of
// these, DataError for damaged or foreign weights, IoError.
TrainedModel load_trained(const std::filesystem::path& path, bool averages);

// The texts that go with exported weights, and let load_trained() know what they are.
weights::Metadata export_metadata(const TrainedModel& model);

// load_trained() for --init. Throws UsageError when the weights are of another model.
TrainedModel load_initial(const std::filesystem::path& path, const std::string& model);

// Puts the weights of a file (or run, or checkpoint) into a state, averages too, to train on from there. A
// last layer for other classes keeps its initial values, but for the rows of classes that both know by name
// (class_names, by label; none: not known); gives a line for people that says what was done. Throws DataError
// listing what does not match.
std::string initialise_from(const std::filesystem::path& path, const std::string& model,
                            const std::vector<std::string>& class_names, backend::State& state);

// The tensor whose moving average `name` is; empty when it is not an average.
std::string averaged(const backend::State& state, const std::string& name);

// Puts weights into a state that has the same tensors.
void write_weights(const weights::ModelWeights& weights, backend::State& state);

}  // namespace redline::train
