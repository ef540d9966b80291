#include "train/observe.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include <fmt/ranges.h>

#include "backend/image_decoder.h"
#include "graph/autodiff.h"
#include "metrics/histogram.h"

namespace redline::train {
namespace {

using Value = std::variant<bool, double, std::string>;

template <typename T>
std::optional<Value> value_of(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value;
  } else if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else if constexpr (std::is_same_v<T, std::optional<std::int64_t>>) {
    if (value) return static_cast<double>(*value);
    return {};
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (value.empty()) return {};
    return value;
  } else {
    if (value.empty()) return {};
    return fmt::format("{}", fmt::join(value, ", "));
  }
}

}  // namespace

metrics::Picture batch_picture(const data::Batch& batch, int batch_size, int image_size, std::int64_t step) {
  constexpr int kMost = 16, kGap = 2;
  const int count = std::min(kMost, batch_size);
  const int columns = static_cast<int>(std::ceil(std::sqrt(count)));
  const int rows = (count + columns - 1) / columns;
  const int pitch = image_size + kGap;
  metrics::Picture picture{"inputs", step, columns * pitch - kGap, rows * pitch - kGap, {}};
  const auto row_bytes = static_cast<std::size_t>(image_size) * 3;
  const auto picture_row = static_cast<std::size_t>(picture.width) * 3;
  picture.rgb.assign(picture_row * static_cast<std::size_t>(picture.height), 255);
  const std::size_t image_bytes = row_bytes * static_cast<std::size_t>(image_size);
  std::vector<std::uint8_t> from_device(batch.device_images != nullptr ? image_bytes : 0);
  for (int i = 0; i < count; ++i) {
    if (batch.device_images != nullptr) batch.device_images->read(i, from_device);
    const std::uint8_t* image = batch.device_images != nullptr
                                    ? from_device.data()
                                    : batch.images + static_cast<std::size_t>(i) * image_bytes;
    for (int y = 0; y < image_size; ++y) {
      const std::size_t to = static_cast<std::size_t>(i / columns * pitch + y) * picture_row +
                             static_cast<std::size_t>(i % columns * pitch) * 3;
      std::copy_n(image + static_cast<std::size_t>(y) * row_bytes, row_bytes,
                  picture.rgb.begin() + static_cast<std::ptrdiff_t>(to));
    }
  }
  return picture;
}

void record_histograms(const backend::State& state, const backend::Executable& executable,
                       double gradient_scale, std::int64_t step, metrics::Recorder& recorder) {
  std::vector<float> values;
  for (const std::string& name : state.names()) {
    const graph::Tensor& tensor = state.tensor(name);
    if (tensor.kind != graph::TensorKind::parameter) continue;
    values.resize(static_cast<std::size_t>(tensor.shape.elements()));
    state.read(name, values);
    recorder.histogram(metrics::histogram_of("weights/" + name, step, values));
  }
  const plan::Plan& plan = executable.plan();
  for (const plan::Bucket& bucket : plan.buckets) {
    for (const graph::TensorId id : bucket.gradients) {
      const graph::Tensor& tensor = plan.graph().tensor(id);
      values.resize(static_cast<std::size_t>(tensor.shape.elements()));
      executable.read(id, values);
      for (float& value : values) value = static_cast<float>(value * gradient_scale);
      const std::string name = tensor.name.substr(0, tensor.name.find(graph::kGradientSuffix));
      recorder.histogram(metrics::histogram_of("gradients/" + name, step, values));
    }
  }
}

std::vector<metrics::Hyperparameter> hyperparameters(const Config& config) {
  Config copied = config;
  std::vector<metrics::Hyperparameter> all;
  for (const Field& field : fields()) {
    if (field.section == "run" && field.key != "seed") continue;
    const auto value = std::visit([&](auto member) { return value_of(member(copied)); }, field.member);
    if (value) all.push_back({field.path(), *value});
  }
  return all;
}

}  // namespace redline::train
