// The weights of one ResNet in memory, and reading and writing them. Names and shapes are torchvision's:
// conv1.weight, layer1.0.bn1.running_mean, fc.bias …
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "graph/tensor.h"
#include "weights/tensor_file.h"

namespace redline::weights {

struct ModelWeights {
  std::string model;  // "resnet50"
  std::int64_t classes = 0;
  std::map<std::string, std::vector<float>> values;  // of every parameter and running statistic
  std::vector<std::string> class_names = {};         // by label; none: not known. May be fewer than `classes`
};

// The parameters and running statistics that a model has, in the order of its layers.
std::vector<graph::Tensor> model_tensors(const std::string& model, std::int64_t classes);

// How a file differs from a model. PyTorch's counters (num_batches_tracked) are ignored.
struct Mismatch {
  std::vector<std::string> missing, unknown, other_shape;  // for people, one text a tensor
  bool none() const { return missing.empty() && unknown.empty() && other_shape.empty(); }
  std::string text() const;  // what differs, a line per kind, long lists cut short
};
Mismatch compare(const std::vector<graph::Tensor>& wanted, const TensorFile& file);

// The model and number of classes of a weight file. Throws DataError if it fits no model, with the
// differences to the closest.
struct Recognised {
  std::string model;
  std::int64_t classes = 0;
};
Recognised recognise(const TensorFile& file);

// Reads the weights of the recognised model. With `averages`, another file of the same run, the values are
// read from there under <name>.ema. Throws DataError if one is missing, and for unusable values: not finite,
// or a negative variance.
ModelWeights read_model(const TensorFile& file, const TensorFile* averages = nullptr);

// Writes a file that torchvision's models load: every tensor rounded to `type` (fp32, fp16 or bf16), and
// `batches` in PyTorch's counters. Throws IoError.
void write_model(const std::filesystem::path& path, const ModelWeights& weights, ElementType type,
                 std::int64_t batches, Metadata metadata);

struct OnnxOptions {
  std::int64_t image_size = 224;
  bool fold_norms = false;  // batch norms as part of the convolutions before them
  Metadata metadata;
};
// Writes the network as an ONNX model (opset 17): "images", fp32 [batch, 3, size, size], normalised, to
// "logits", fp32 [batch, classes]. Any batch size. Throws IoError.
void write_onnx(const std::filesystem::path& path, const ModelWeights& weights, const OnnxOptions& options);

}  // namespace redline::weights
