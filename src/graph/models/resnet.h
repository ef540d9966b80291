// The ResNets: 18 to 152 (v1.5: the stride sits on the 3x3 convolution of a bottleneck), wide ResNets and
// ResNeXt, with torchvision's parameter names, and ResNet-50-D with timm's. Each is a row of the table in
// resnet.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace redline::graph {

// The parts of every model, in the order of the forward pass.
inline constexpr std::array<const char*, 6> kParts = {"stem", "layer1", "layer2", "layer3", "layer4", "fc"};

struct ModelOptions {
  std::string model = "resnet50";
  std::int64_t classes = 1000;
  std::int64_t image_size = 224;
  std::int64_t batch = 32;
  DType dtype = DType::f32;  // of activations
  bool training = true;      // false: running statistics, no gradient outputs
  bool image_bytes = true;   // input is u8 images, normalised in the graph; false: f32 [N,3,H,W]
  float label_smoothing = 0.0F;
  bool mixed_labels = false;  // an image may be mixed of two: each row has two labels and a weight
  int frozen_parts = 0;       // the first of kParts, which training leaves as they are
  NormalizeAttr normalize;
};

// A model's graph and the tensors a trainer talks to.
struct Model {
  Graph graph;
  TensorId images = kNone;         // u8 or f32 [N,3,H,W]
  TensorId labels = kNone;         // i32 [N]; -1 marks a row that does not count
  TensorId scalars = kNone;        // f32 [kStepScalars]
  TensorId other_labels = kNone;   // i32 [N], with mixed_labels alone
  TensorId label_weights = kNone;  // f32 [N], of labels; other_labels have the rest of one
  TensorId logits = kNone;         // f32 [N,classes]
  TensorId metrics = kNone;        // f32 [kLossMetrics]
};

std::vector<std::string> model_names();
// Throws UsageError for an unknown model or an image too small for it.
Model build_resnet(const ModelOptions& options);

// Where a parameter stands in a model: the stem is layer 0, each block the next, and the head the last.
struct Depth {
  int part;  // in kParts
  int layer;
};
Depth depth_of(const std::string& parameter, const std::string& model);
int layer_count(const std::string& model);

// Fills one parameter or statistic of a model with its initial value, a function of (seed, name) alone:
// Kaiming-normal (fan out) convolutions, ones and zeros for norms, uniform 1/sqrt(fan in) for the linear
// layer. zero_init_last makes the last norm of every residual branch start at zero.
void initial_value(const Tensor& tensor, std::uint64_t seed, bool zero_init_last, const std::string& model,
                   std::span<float> values);

}  // namespace redline::graph
