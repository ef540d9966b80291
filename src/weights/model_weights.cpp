#include "weights/model_weights.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.h"
#include "graph/models/resnet.h"
#include "weights/safetensors.h"

namespace redline::weights {
namespace {

constexpr std::string_view kCounter = ".num_batches_tracked";
constexpr std::string_view kAverages = "n_averaged";  // of torch.optim.swa_utils.AveragedModel
constexpr std::string_view kMean = ".running_mean";
constexpr std::string_view kVariance = ".running_var";
constexpr const char* kHead = "fc.weight";
constexpr const char* kAverageSuffix = ".ema";

Dimensions dimensions(const graph::Shape& shape) {
  Dimensions dims;
  for (int axis = 0; axis < shape.rank(); ++axis) dims.push_back(shape[axis]);
  return dims;
}

std::string listed(const char* what, const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  if (names.empty()) return "";
  const auto shown = std::min(kShown, names.size());
  const std::string more = names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "";
  return fmt::format("\n  {} {}: {}{}", names.size(), what,
                     fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     more);
}

void check_values(const TensorFile& file, const std::string& name, std::span<const float> values) {
  const auto bad = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  if (bad != values.end()) {
    throw DataError(
        "{}: {} holds {} at element {}: training went wrong before this was saved, or it is damaged",
        file.path().string(), name, *bad, bad - values.begin());
  }
  const auto least = std::ranges::min_element(values);
  if (name.ends_with(kVariance) && least != values.end() && *least < 0)
    throw DataError("{}: {} holds a variance of {}: it is damaged", file.path().string(), name, *least);
}

std::int64_t classes_in(const TensorFile& file) {
  const Entry* head = file.find(kHead);
  const bool usable =
      head != nullptr && head->shape.size() == 2 && head->shape[0] >= 2 && head->shape[0] < (1 << 24);
  return usable ? head->shape[0] : 1000;
}

}  // namespace

std::vector<graph::Tensor> model_tensors(const std::string& model, std::int64_t classes) {
  graph::ModelOptions options;
  options.model = model;
  options.classes = classes;
  options.batch = 1;
  options.training = false;
  const graph::Model built = graph::build_resnet(options);
  std::vector<graph::Tensor> tensors;
  for (const graph::Tensor& tensor : built.graph.tensors()) {
    if (tensor.kind == graph::TensorKind::parameter || tensor.kind == graph::TensorKind::statistic)
      tensors.push_back(tensor);
  }
  return tensors;
}

std::string Mismatch::text() const {
  return listed("missing", missing) + listed("of another shape", other_shape) + listed("not known", unknown);
}

Mismatch compare(const std::vector<graph::Tensor>& wanted, const TensorFile& file) {
  Mismatch found;
  std::map<std::string, const graph::Tensor*> by_name;
  for (const graph::Tensor& tensor : wanted) {
    by_name[tensor.name] = &tensor;
    const Entry* entry = file.find(tensor.name);
    if (entry == nullptr) {
      found.missing.push_back(tensor.name);
    } else if (entry->shape != dimensions(tensor.shape) || !is_floating(entry->type)) {
      found.other_shape.push_back(fmt::format("{} is {} {} there and {} here", tensor.name,
                                              name_of(entry->type), text_of(entry->shape),
                                              tensor.shape.text()));
    }
  }
  for (const Entry& entry : file.entries()) {
    const bool counter = entry.name.ends_with(kCounter) || entry.name == kAverages;
    if (!by_name.contains(entry.name) && !counter) found.unknown.push_back(entry.name);
  }
  return found;
}

Recognised recognise(const TensorFile& file) {
  const std::int64_t classes = classes_in(file);
  std::optional<Mismatch> nearest;
  std::string nearest_model;
  for (const std::string& model : graph::model_names()) {
    Mismatch mismatch = compare(model_tensors(model, classes), file);
    if (mismatch.none()) return {model, classes};
    const auto size = [](const Mismatch& m) {
      return m.missing.size() + m.other_shape.size() + m.unknown.size();
    };
    if (nearest && size(*nearest) <= size(mismatch)) continue;
    nearest = std::move(mismatch);
    nearest_model = model;
  }
  throw DataError("{} does not hold the weights of a ResNet with torchvision's names. Compared with {}:{}",
                  file.path().string(), nearest_model, nearest->text());
}

ModelWeights read_model(const TensorFile& file, const TensorFile* averages) {
  const Recognised recognised = recognise(file);
  ModelWeights weights{recognised.model, recognised.classes, {}};
  const TensorFile& from = averages != nullptr ? *averages : file;
  for (const graph::Tensor& tensor : model_tensors(weights.model, weights.classes)) {
    const std::string name = averages != nullptr ? tensor.name + kAverageSuffix : tensor.name;
    const Entry* entry = from.find(name);
    if (entry == nullptr || entry->shape != dimensions(tensor.shape))
      throw DataError("{} has no moving average of {}: train with --model-ema to have them",
                      from.path().string(), tensor.name);
    std::vector<float>& values = weights.values[tensor.name];
    values.resize(entry->elements());
    from.read(*entry, values);
    check_values(from, tensor.name, values);
  }
  return weights;
}

void write_model(const std::filesystem::path& path, const ModelWeights& weights, ElementType type,
                 std::int64_t batches, Metadata metadata) {
  const std::vector<graph::Tensor> tensors = model_tensors(weights.model, weights.classes);
  std::vector<Entry> entries;
  for (const graph::Tensor& tensor : tensors) {  // 8 bytes wide: they go first
    if (!tensor.name.ends_with(kMean)) continue;
    const std::string norm = tensor.name.substr(0, tensor.name.size() - kMean.size());
    entries.push_back({norm + std::string(kCounter), ElementType::i64, {}});
  }
  const std::size_t counters = entries.size();
  for (const graph::Tensor& tensor : tensors)
    entries.push_back({tensor.name, type, dimensions(tensor.shape)});
  metadata["format"] = "pt";  // what PyTorch's tools look for
  SafetensorsWriter writer(path, std::move(entries), metadata);
  for (std::size_t i = 0; i < counters; ++i) writer.write_bytes(std::as_bytes(std::span(&batches, 1)));
  for (const graph::Tensor& tensor : tensors) writer.write(weights.values.at(tensor.name));
  writer.commit();
}

}  // namespace redline::weights
