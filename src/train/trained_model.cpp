#include "train/trained_model.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "data/sources/class_list.h"
#include "graph/op.h"
#include "train/checkpoint.h"
#include "train/config_file.h"
#include "weights/class_names.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHeadWeight = "fc.weight";
constexpr const char* kHeadBias = "fc.bias";
constexpr std::string_view kAverageSuffix = ".ema";

// The checkpoint folder that a path means; empty for a file.
fs::path checkpoint_folder(const fs::path& path) {
  if (fs::is_regular_file(path)) return {};
  if (!fs::exists(path)) throw UsageError("{}: no such file or folder", path.string());
  for (const fs::path& folder : {path, path / "checkpoints" / "latest"}) {
    if (fs::exists(folder / kModelFile)) return fs::canonical(folder);
  }
  throw UsageError(
      "{} has no weights: give a run with checkpoints, a checkpoint (runs/<name>/checkpoints/step-N), or a "
      "safetensors or .pth file",
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
  model.weights.class_names = state.subject.class_names;
}

void write_all(backend::State& state, const std::string& name, const std::vector<float>& values) {
  state.write(name, values);
  const std::vector<std::string> names = state.names();
  if (std::find(names.begin(), names.end(), name + std::string(kAverageSuffix)) != names.end())
    state.write(name + std::string(kAverageSuffix), values);
}

// Sets the rows of the last layer for the state's classes: from the weights for classes with the same name,
// and the state's own values for the others. Without names, the rows are kept if their number is the same.
// Returns a description.
std::string fit_head(weights::ModelWeights& weights, const std::vector<std::string>& class_names,
                     const backend::State& state) {
  const auto classes = static_cast<std::size_t>(state.tensor(kHeadBias).shape[0]);
  const bool as_many = static_cast<std::int64_t>(classes) == weights.classes;
  const bool named = !class_names.empty() && !weights.class_names.empty();
  if (as_many && (!named || class_names == weights.class_names)) return {};
  std::vector<std::pair<std::size_t, std::size_t>> rows;  // here and there
  const data::ClassLabels known(weights.class_names);
  for (std::size_t label = 0; named && label < class_names.size(); ++label)
    if (const int there = known.find(class_names[label]); there >= 0)
      rows.emplace_back(label, static_cast<std::size_t>(there));
  for (const char* name : {kHeadWeight, kHeadBias}) {
    const std::vector<float> trained = std::move(weights.values.at(name));
    std::vector<float>& fitted = weights.values[name];
    fitted.resize(static_cast<std::size_t>(state.tensor(name).shape.elements()));
    state.read(name, fitted);
    const auto width = static_cast<std::ptrdiff_t>(fitted.size() / classes);
    for (const auto& [here, there] : rows)
      std::copy_n(trained.begin() + static_cast<std::ptrdiff_t>(there) * width, width,
                  fitted.begin() + static_cast<std::ptrdiff_t>(here) * width);
  }
  if (rows.size() == classes) return "; the last layer in the order of the data's classes";
  if (!rows.empty())
    return fmt::format("; the last layer keeps {} of {} classes, matched by name, and the others are new",
                       rows.size(), classes);
  return fmt::format("; a new last layer for {} classes instead of {}", classes, weights.classes);
}

}  // namespace

TrainedModel load_trained(const fs::path& path, bool averages) {
  TrainedModel model;
  const fs::path folder = checkpoint_folder(path);
  model.path = folder.empty() ? path : folder / kModelFile;
  if (folder.empty() && averages)
    throw UsageError("{} is a weight file: only a run or a checkpoint has moving averages", path.string());
  const auto reader = weights::open_tensors(model.path);
  if (averages) {
    model.path = folder / kOptimizerFile;
    const auto average_reader = weights::open_tensors(model.path);
    model.weights = weights::read_model(*reader, average_reader.get());
  } else {
    model.weights = weights::read_model(*reader);
  }
  if (!folder.empty()) {
    read_checkpoint(folder, model);
    return model;
  }
  const auto size = number_in<std::int64_t>(reader->metadata(), "redline.image_size");
  if (size && *size > 0 && *size <= 1 << 16) model.image_size = size;
  model.crop_pct = number_in<double>(reader->metadata(), "redline.crop_pct").value_or(model.crop_pct);
  model.step = number_in<std::int64_t>(reader->metadata(), "redline.step").value_or(0);
  if (const auto names = reader->metadata().find(weights::kClassNames); names != reader->metadata().end())
    model.weights.class_names = weights::parse_class_names(names->second, model.weights.classes);
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
  if (std::string names = weights::class_names_text(model.weights.class_names); !names.empty())
    metadata[weights::kClassNames] = std::move(names);
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

TrainedModel load_initial(const fs::path& path, const std::string& model) {
  TrainedModel trained = load_trained(path, /*averages=*/false);
  if (trained.weights.model != model) {
    throw UsageError("--init {}: these are the weights of {}, and --model is {}", path.string(),
                     trained.weights.model, model);
  }
  return trained;
}

std::string initialise_from(const fs::path& path, const std::string& model,
                            const std::vector<std::string>& class_names, backend::State& state) {
  TrainedModel trained = load_initial(path, model);
  const std::string head = fit_head(trained.weights, class_names, state);
  write_weights(trained.weights, state);
  return fmt::format("weights from {}{}", trained.path.string(), head);
}

}  // namespace redline::train
