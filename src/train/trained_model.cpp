#include "train/trained_model.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "graph/op.h"
#include "train/checkpoint.h"
#include "train/config_file.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kHeadWeight = "fc.weight";
constexpr const char* kHeadBias = "fc.bias";
constexpr std::string_view kAverageSuffix = ".ema";

// The checkpoint folder that a path means; empty for a file.
fs::path checkpoint_folder(const fs::path& path) {
  if (fs::is_regular_file(path)) return {};
  if (!fs::exists(path)) throw UsageError("there is no {}", path.string());
  for (const fs::path& folder : {path, path / "checkpoints" / "latest"}) {
    if (fs::exists(folder / kModelFile)) return fs::canonical(folder);
  }
  throw UsageError(
      "{} holds no weights: name a run with checkpoints, a checkpoint (runs/<name>/checkpoints/step-N) or a "
      "safetensors file",
      path.string());
}

template <typename Number>
std::optional<Number> number_in(const weights::Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return {};
  const char *begin = found->second.data(), *end = begin + found->second.size();
  Number value{};
  const auto read = std::from_chars(begin, end, value);
  if (read.ec != std::errc{} || read.ptr != end) return {};
  return value;
}

// What a checkpoint says of itself, once every byte of it was checked.
void read_checkpoint(const fs::path& folder, TrainedModel& model) {
  const CheckpointState state = open_checkpoint(folder).state;
  model.step = state.progress.step;
  model.config = parse_config(state.subject.config, folder.string());
  model.image_size = state.subject.image_size;
  model.crop_pct = model.config->data.crop_pct;
}

void write_all(backend::State& state, const std::string& name, const std::vector<float>& values) {
  state.write(name, values);
  const std::vector<std::string> names = state.names();
  if (std::find(names.begin(), names.end(), name + std::string(kAverageSuffix)) != names.end())
    state.write(name + std::string(kAverageSuffix), values);
}

}  // namespace

TrainedModel load_trained(const fs::path& path, bool averages) {
  TrainedModel model;
  const fs::path folder = checkpoint_folder(path);
  model.path = folder.empty() ? path : folder / kModelFile;
  if (folder.empty() && averages)
    throw UsageError("{} is one file of weights: only a run or a checkpoint has moving averages",
                     path.string());
  if (!folder.empty()) read_checkpoint(folder, model);
  const weights::SafetensorsReader reader(model.path);
  if (averages) {
    model.path = folder / kOptimizerFile;
    const weights::SafetensorsReader average_reader(model.path);
    model.weights = weights::read_model(reader, &average_reader);
  } else {
    model.weights = weights::read_model(reader);
  }
  if (!folder.empty()) return model;
  const auto size = number_in<std::int64_t>(reader.metadata(), "redline.image_size");
  if (size && *size > 0 && *size <= 1 << 16) model.image_size = size;
  model.crop_pct = number_in<double>(reader.metadata(), "redline.crop_pct").value_or(model.crop_pct);
  model.step = number_in<std::int64_t>(reader.metadata(), "redline.step").value_or(0);
  return model;
}

weights::Metadata export_metadata(const TrainedModel& model) {
  const graph::NormalizeAttr normalize;
  const auto three = [](const float(&values)[3]) {
    return fmt::format("{:g} {:g} {:g}", values[0], values[1], values[2]);
  };
  weights::Metadata metadata = {
      {"redline.model", model.weights.model},
      {"redline.classes", std::to_string(model.weights.classes)},
      {"redline.crop_pct", fmt::format("{}", model.crop_pct)},
      {"redline.input", "RGB, (value / 255 - mean) / std"},
      {"redline.mean", three(normalize.mean)},
      {"redline.std", three(normalize.std)},
  };
  if (model.image_size) metadata["redline.image_size"] = std::to_string(*model.image_size);
  if (model.step > 0) metadata["redline.step"] = std::to_string(model.step);
  return metadata;
}

std::string averaged(const backend::State& state, const std::string& name) {
  if (state.tensor(name).kind != graph::TensorKind::average) return {};
  check(name.ends_with(kAverageSuffix), "'{}' is an average without the suffix {}", name, kAverageSuffix);
  return name.substr(0, name.size() - kAverageSuffix.size());
}

void write_weights(const weights::ModelWeights& weights, backend::State& state) {
  for (const auto& [name, values] : weights.values) write_all(state, name, values);
}

std::string initialise_from(const fs::path& path, const std::string& model, backend::State& state) {
  TrainedModel trained = load_trained(path, /*averages=*/false);
  if (trained.weights.model != model) {
    throw UsageError("--init {}: these are the weights of {}, and --model is {}", path.string(),
                     trained.weights.model, model);
  }
  const std::int64_t classes = state.tensor(kHeadBias).shape[0];
  std::string text = fmt::format("weights from {}", trained.path.string());
  if (classes != trained.weights.classes) {
    trained.weights.values.erase(kHeadWeight);
    trained.weights.values.erase(kHeadBias);
    text += fmt::format("; a new last layer for {} classes in place of {}", classes, trained.weights.classes);
  }
  write_weights(trained.weights, state);
  return text;
}

}  // namespace redline::train
