// Convolutions by cuDNN's graph API. A plan is found once per shape by timing what cuDNN offers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/choices.h"
#include "graph/tensor.h"

namespace redline::backend::cuda {

enum class ConvPass : std::uint8_t { forward, forward_sums, grad_input, grad_weight };

// A convolution's shapes as stored: the stem's may be folded.
struct ConvShape {
  ConvPass pass = ConvPass::forward;
  graph::DType dtype = graph::DType::f16;
  std::int64_t n = 0, c = 0, h = 0, w = 0, k = 0, out_h = 0, out_w = 0;
  int kernel = 1, stride = 1, pad = 0;

  std::string key() const;
  friend bool operator==(const ConvShape&, const ConvShape&) = default;
};

// forward: x, w -> y (sums: 2 x k fp32, of y and y^2); grad_input: y is dy, x is written; grad_weight: w is
// written.
struct ConvPointers {
  void *x = nullptr, *w = nullptr, *y = nullptr;
  float* sums = nullptr;
};

// A cuDNN plan that was chosen for one shape. Runs on the stream it is given; captures into CUDA graphs.
class ConvPlan {
 public:
  virtual ~ConvPlan() = default;
  virtual void run(const ConvPointers& pointers, void* workspace, cudaStream_t stream) const = 0;
  virtual std::size_t workspace_bytes() const = 0;
};

class ConvLibrary {
 public:
  virtual ~ConvLibrary() = default;
  // Finds a plan for every shape, in parallel on the host, timing on the device. An entry is null where cuDNN
  // has none (only forward_sums may come back null: the plain convolution always exists).
  virtual std::vector<std::shared_ptr<const ConvPlan>> find(const std::vector<ConvShape>& shapes) = 0;
};

// Which of cuDNN's kernels may be taken.
struct ConvRules {
  bool deterministic = false;
  bool tf32 = false;  // fp32 convolutions may round their inputs to tf32
};

// `choices` outlives the library.
std::unique_ptr<ConvLibrary> make_conv_library(Choices& choices, const ConvRules& rules);
std::string cudnn_version();  // "9.19.0"

}  // namespace redline::backend::cuda
