#include "graph/models/resnet.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace redline::graph {
namespace {

struct Architecture {
  const char* name;
  bool bottleneck;
  std::array<int, 4> blocks;  // per stage
};

constexpr Architecture kArchitectures[] = {
    {"resnet18", false, {2, 2, 2, 2}},  {"resnet34", false, {3, 4, 6, 3}},  {"resnet50", true, {3, 4, 6, 3}},
    {"resnet101", true, {3, 4, 23, 3}}, {"resnet152", true, {3, 8, 36, 3}},
};

const Architecture& architecture(const std::string& name) {
  for (const Architecture& known : kArchitectures) {
    if (name == known.name) return known;
  }
  throw UsageError("unknown model '{}': choose resnet18, resnet34, resnet50, resnet101 or resnet152", name);
}

class ResNetBuilder {
 public:
  explicit ResNetBuilder(Builder& builder) : b_(builder) {}

  TensorId conv_norm(const std::string& conv, const std::string& norm, TensorId x, std::int64_t channels,
                     int kernel, int stride) {
    return b_.batch_norm(norm, b_.conv(conv, x, channels, kernel, stride, kernel / 2));
  }

  TensorId basic_branch(const std::string& name, TensorId x, std::int64_t width, int stride) {
    x = b_.relu(name + ".relu1", conv_norm(name + ".conv1", name + ".bn1", x, width, 3, stride));
    return conv_norm(name + ".conv2", name + ".bn2", x, width, 3, 1);
  }

  TensorId bottleneck_branch(const std::string& name, TensorId x, std::int64_t width, int stride) {
    x = b_.relu(name + ".relu1", conv_norm(name + ".conv1", name + ".bn1", x, width, 1, 1));
    x = b_.relu(name + ".relu2", conv_norm(name + ".conv2", name + ".bn2", x, width, 3, stride));
    return conv_norm(name + ".conv3", name + ".bn3", x, 4 * width, 1, 1);
  }

  TensorId stage(const std::string& name, TensorId x, const Architecture& arch, int index,
                 std::int64_t in_channels) {
    const std::int64_t width = std::int64_t{64} << index;
    const std::int64_t out_channels = arch.bottleneck ? 4 * width : width;
    for (int block = 0; block < arch.blocks[static_cast<std::size_t>(index)]; ++block) {
      const std::string at = name + "." + std::to_string(block);
      const int stride = block == 0 && index > 0 ? 2 : 1;
      const TensorId branch =
          arch.bottleneck ? bottleneck_branch(at, x, width, stride) : basic_branch(at, x, width, stride);
      TensorId shortcut = x;
      if (stride != 1 || in_channels != out_channels) {
        shortcut = conv_norm(at + ".downsample.0", at + ".downsample.1", x, out_channels, 1, stride);
      }
      x = b_.relu(at + ".relu", b_.add(at + ".add", branch, shortcut));
      in_channels = out_channels;
    }
    return x;
  }

 private:
  Builder& b_;
};

// The last norm of a residual branch: bn3 of a bottleneck, bn2 of a basic block.
bool ends_residual_branch(const std::string& parameter, bool bottleneck) {
  return parameter.starts_with("layer") && parameter.ends_with(bottleneck ? ".bn3.weight" : ".bn2.weight");
}

std::uint64_t stream_of(const std::string& name) {  // FNV-1a: the same on every platform
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Architecture& known : kArchitectures) names.emplace_back(known.name);
  return names;
}

Model build_resnet(const ModelOptions& options) {
  const Architecture& arch = architecture(options.model);
  if (options.batch < 1) throw UsageError("a batch of {} images is not possible", options.batch);
  if (options.classes < 2) throw UsageError("a classifier needs at least 2 classes, not {}", options.classes);
  if (options.image_size < 1) throw UsageError("an image size of {} is not possible", options.image_size);
  Model model;
  Builder builder(model.graph, options.dtype, options.training);
  ResNetBuilder resnet(builder);

  const Shape images{options.batch, 3, options.image_size, options.image_size};
  TensorId x = model.images = builder.input("images", images, options.image_bytes ? DType::u8 : DType::f32);
  model.labels = builder.input("labels", {options.batch}, DType::i32);
  model.scalars = builder.input("scalars", {kStepScalars}, DType::f32);
  if (options.mixed_labels) {
    model.other_labels = builder.input("other_labels", {options.batch}, DType::i32);
    model.label_weights = builder.input("label_weights", {options.batch}, DType::f32);
  }
  x = builder.normalize_image(x, options.normalize);

  x = builder.relu("relu", resnet.conv_norm("conv1", "bn1", x, 64, 7, 2));
  x = builder.max_pool("maxpool", x, {3, 2, 1});
  std::int64_t channels = 64;
  for (int i = 0; i < 4; ++i) {
    x = resnet.stage("layer" + std::to_string(i + 1), x, arch, i, channels);
    channels = model.graph.tensor(x).shape.c();
  }
  x = builder.avg_pool("avgpool", x);
  model.logits = builder.linear("fc", x, options.classes);
  model.metrics = builder.softmax_cross_entropy("loss", model.logits, model.labels, options.label_smoothing,
                                                model.other_labels, model.label_weights);
  return model;
}

void initial_value(const Tensor& tensor, std::uint64_t seed, bool zero_init_last, const std::string& model,
                   std::span<float> values) {
  check(static_cast<std::int64_t>(values.size()) == tensor.shape.elements(), "'{}' has {} elements, not {}",
        tensor.name, tensor.shape.elements(), values.size());
  Random random(seed, stream_of(tensor.name));
  const std::string& name = tensor.name;
  if (tensor.kind == TensorKind::statistic) {
    std::ranges::fill(values, name.ends_with("running_var") ? 1.0F : 0.0F);
  } else if (tensor.shape.rank() == 4) {
    const auto fan_out = static_cast<double>(tensor.shape[0] * tensor.shape[2] * tensor.shape[3]);
    const auto deviation = static_cast<float>(std::sqrt(2.0 / fan_out));
    for (float& value : values) value = deviation * static_cast<float>(random.normal());
  } else if (name == "fc.weight" || name == "fc.bias") {
    const std::int64_t fan_in = architecture(model).bottleneck ? 2048 : 512;
    const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(fan_in)));
    for (float& value : values) value = bound * (2.0F * static_cast<float>(random.uniform()) - 1.0F);
  } else if (name.ends_with(".weight")) {
    const bool zero = zero_init_last && ends_residual_branch(name, architecture(model).bottleneck);
    std::ranges::fill(values, zero ? 0.0F : 1.0F);
  } else {
    std::ranges::fill(values, 0.0F);
  }
}

}  // namespace redline::graph
