#include "graph/models/resnet.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/random.h"

namespace redline::graph {
namespace {

struct Architecture {
  const char* name;
  bool bottleneck;
  std::array<int, 4> blocks;  // per stage
  int groups = 1;             // of a bottleneck's 3x3 convolution
  int group_width = 64;       // channels of a group in the first stage; doubles with every later one
  bool deep = false;          // ResNet-D: three 3x3 convolutions as the stem, average pools on shortcuts

  std::int64_t width(int stage) const { return (std::int64_t{groups} * group_width) << stage; }
};

constexpr Architecture kArchitectures[] = {
    {"resnet18", false, {2, 2, 2, 2}},
    {"resnet34", false, {3, 4, 6, 3}},
    {"resnet50", true, {3, 4, 6, 3}},
    {"resnet101", true, {3, 4, 23, 3}},
    {"resnet152", true, {3, 8, 36, 3}},
    {"wide_resnet50_2", true, {3, 4, 6, 3}, 1, 128},
    {"wide_resnet101_2", true, {3, 4, 23, 3}, 1, 128},
    {"resnext50_32x4d", true, {3, 4, 6, 3}, 32, 4},
    {"resnext101_32x8d", true, {3, 4, 23, 3}, 32, 8},
    {"resnext101_64x4d", true, {3, 4, 23, 3}, 64, 4},
    {"resnet50d", true, {3, 4, 6, 3}, 1, 64, true},
};

const Architecture& architecture(const std::string& name) {
  for (const Architecture& known : kArchitectures) {
    if (name == known.name) return known;
  }
  throw UsageError("unknown model '{}': choose one of {}", name, fmt::join(model_names(), ", "));
}

class ResNetBuilder {
 public:
  ResNetBuilder(Builder& builder, const Architecture& architecture) : b_(builder), arch_(architecture) {}

  // From the images to the input of the first stage.
  TensorId stem(TensorId x) {
    if (arch_.deep) {
      x = b_.relu("conv1.2", conv_norm("conv1.0", "conv1.1", x, 32, 3, {2, 1}));
      x = b_.relu("conv1.5", conv_norm("conv1.3", "conv1.4", x, 32, 3, {1, 1}));
      x = conv_norm("conv1.6", "bn1", x, 64, 3, {1, 1});
    } else {
      x = conv_norm("conv1", "bn1", x, 64, 7, {2, 3});
    }
    return b_.max_pool("maxpool", b_.relu("relu", x), {3, 2, 1});
  }

  TensorId stage(TensorId x, std::int64_t in_channels, int index) {
    const std::int64_t planes = std::int64_t{64} << index;
    const std::int64_t out_channels = arch_.bottleneck ? 4 * planes : planes;
    for (int block = 0; block < arch_.blocks[static_cast<std::size_t>(index)]; ++block) {
      const std::string at = "layer" + std::to_string(index + 1) + "." + std::to_string(block);
      const int stride = block == 0 && index > 0 ? 2 : 1;
      const TensorId branch = arch_.bottleneck
                                  ? bottleneck_branch(at, x, arch_.width(index), out_channels, stride)
                                  : basic_branch(at, x, planes, stride);
      TensorId shortcut = x;
      if (stride != 1 || in_channels != out_channels) shortcut = downsample(at, x, out_channels, stride);
      x = b_.relu(at + ".relu", b_.add(at + ".add", branch, shortcut));
      in_channels = out_channels;
    }
    return x;
  }

 private:
  TensorId conv_norm(const std::string& conv, const std::string& norm, TensorId x, std::int64_t channels,
                     int kernel, const ConvAttr& attr) {
    return b_.batch_norm(norm, b_.conv(conv, x, channels, kernel, attr));
  }

  TensorId basic_branch(const std::string& name, TensorId x, std::int64_t width, int stride) {
    x = b_.relu(name + ".relu1", conv_norm(name + ".conv1", name + ".bn1", x, width, 3, {stride, 1}));
    return conv_norm(name + ".conv2", name + ".bn2", x, width, 3, {1, 1});
  }

  TensorId bottleneck_branch(const std::string& name, TensorId x, std::int64_t width,
                             std::int64_t out_channels, int stride) {
    x = b_.relu(name + ".relu1", conv_norm(name + ".conv1", name + ".bn1", x, width, 1, {}));
    x = b_.relu(name + ".relu2",
                conv_norm(name + ".conv2", name + ".bn2", x, width, 3, {stride, 1, arch_.groups}));
    return conv_norm(name + ".conv3", name + ".bn3", x, out_channels, 1, {});
  }

  // ResNet-D's shortcut sees every pixel: a mean of two by two, where the others' convolution skips three.
  TensorId downsample(const std::string& block, TensorId x, std::int64_t channels, int stride) {
    const std::string name = block + ".downsample";
    if (!arch_.deep) return conv_norm(name + ".0", name + ".1", x, channels, 1, {stride, 0});
    if (stride != 1) x = b_.local_avg_pool(name + ".0", x, {stride});
    return conv_norm(name + ".1", name + ".2", x, channels, 1, {});
  }

  Builder& b_;
  const Architecture& arch_;
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
  check(options.frozen_parts >= 0 && options.frozen_parts < static_cast<int>(kParts.size()),
        "{} frozen parts leave nothing to train", options.frozen_parts);
  if (options.image_size < 1) throw UsageError("an image size of {} is not possible", options.image_size);
  Model model;
  Builder builder(model.graph, options.dtype, options.training);
  ResNetBuilder resnet(builder, arch);

  const Shape images{options.batch, 3, options.image_size, options.image_size};
  TensorId x = model.images = builder.input("images", images, options.image_bytes ? DType::u8 : DType::f32);
  model.labels = builder.input("labels", {options.batch}, DType::i32);
  model.scalars = builder.input("scalars", {kStepScalars}, DType::f32);
  if (options.mixed_labels) {
    model.other_labels = builder.input("other_labels", {options.batch}, DType::i32);
    model.label_weights = builder.input("label_weights", {options.batch}, DType::f32);
  }
  x = builder.normalize_image(x, options.normalize);

  const auto begin_part = [&](int part) { builder.freeze(part < options.frozen_parts); };
  begin_part(0);
  x = resnet.stem(x);
  for (int i = 0; i < 4; ++i) {
    begin_part(i + 1);
    x = resnet.stage(x, model.graph.tensor(x).shape.c(), i);
  }
  begin_part(5);
  x = builder.avg_pool("avgpool", x);
  model.logits = builder.linear("fc", x, options.classes);
  model.metrics = builder.softmax_cross_entropy("loss", model.logits, model.labels, options.label_smoothing,
                                                model.other_labels, model.label_weights);
  return model;
}

Depth depth_of(const std::string& parameter, const std::string& model) {
  const Architecture& arch = architecture(model);
  int layer = 1;  // the stem is before the blocks
  for (int stage = 0; stage < 4; ++stage) {
    const std::string name = std::string(kParts[static_cast<std::size_t>(stage) + 1]) + ".";
    if (parameter.starts_with(name)) {
      int block = 0;
      std::from_chars(parameter.data() + name.size(), parameter.data() + parameter.size(), block);
      return {stage + 1, layer + block};
    }
    layer += arch.blocks[static_cast<std::size_t>(stage)];
  }
  return parameter.starts_with("fc.") ? Depth{5, layer} : Depth{0, 0};
}

int layer_count(const std::string& model) {
  const auto& blocks = architecture(model).blocks;
  return std::accumulate(blocks.begin(), blocks.end(), 2);
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
