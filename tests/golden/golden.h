// The golden models: what PyTorch computed (make_golden.py) and the weights, images and labels it was
// computed from, made here by the same hash.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/tensor.h"

namespace redline::golden {

// What is stored of one tensor.
struct Summary {
  std::string name;
  double norm = 0, sum = 0;
  std::vector<double> products;  // with hash-made vectors
  std::vector<double> samples;   // at hash-made positions
};

struct Golden {
  std::string model;
  std::int64_t classes = 0, batch = 0, size = 0;
  int batches = 0;  // distinct batches, used in turn
  float smoothing = 0, lr = 0, momentum = 0, weight_decay = 0;
  bool nesterov = false;
  std::vector<std::string> state_names;  // torchvision's state_dict, in its order
  std::vector<double> logits, eval_logits, losses;
  std::vector<std::vector<int>> correct;  // per step: top-1, top-5
  std::vector<int> eval_correct;
  std::vector<Summary> gradients, statistics, parameters;
};

Golden load_golden(const std::string& model);

// Uniform in [-1, 1), a function of (name, index) alone and exact in fp32.
std::vector<double> symmetric(const std::string& name, std::size_t count);
std::vector<std::uint64_t> hashes(const std::string& name, std::size_t count);

std::vector<float> initial(const graph::Tensor& tensor, const std::string& model);
std::vector<std::uint8_t> images(const Golden& golden, int batch);  // NHWC
std::vector<std::int32_t> labels(const Golden& golden, int batch);

// The summary of values that Redline computed, in double.
Summary summarise(const Summary& like, const std::vector<float>& values);

}  // namespace redline::golden
