// Convolutions by cuDNN's graph API: execution plans for a shape, from which the tuner chooses.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/tensor.h"

namespace redline::backend::cuda {

enum class ConvPass : std::uint8_t { forward, forward_sums, grad_input, grad_weight };

// A convolution's shapes as stored: the stem's may be folded.
struct ConvShape {
  ConvPass pass = ConvPass::forward;
  graph::DType dtype = graph::DType::f16;
  std::int64_t n = 0, c = 0, h = 0, w = 0, k = 0, out_h = 0, out_w = 0;
  int kernel = 1, stride = 1, pad = 0, groups = 1;

  std::int64_t filter_channels() const { return c / groups; }  // from which cuDNN infers the groups

  std::string key() const;
};

// forward: x, w -> y (sums: 2 x k fp32, of y and y^2); grad_input: y is dy, x is written; grad_weight: w is
// written.
struct ConvPointers {
  void *x = nullptr, *w = nullptr, *y = nullptr;
  float* sums = nullptr;
};

// A cuDNN plan for one shape. Runs on the stream it is given; captures into CUDA graphs.
struct ConvPlan {
  std::string name;  // cuDNN's: engine and knobs
  std::size_t workspace_bytes;
  std::function<void(const ConvPointers& pointers, void* workspace, cudaStream_t stream)> run;
};

struct ConvRequest {
  ConvShape shape;
  std::vector<std::string> plans = {};  // names of plans to build
  bool others = false;                  // whether to build others, too
  double value = 0;                     // how much the choice matters
};

class ConvLibrary {
 public:
  virtual ~ConvLibrary() = default;
  // Builds plans in parallel on the host, for shapes that differ. Every shape gets the named plans, or else
  // cuDNN's first proposal. Then others are built, up to `most` per shape, starting with the shapes of most
  // value, while `go_on` returns true (it is called from several threads). Throws UnavailableError if cuDNN
  // has no plan for a shape, unless its pass is forward_sums.
  virtual void build(std::vector<ConvRequest> requests, int most, const std::function<bool()>& go_on) = 0;
  // The plans built for a shape, in cuDNN's order.
  virtual std::vector<std::shared_ptr<const ConvPlan>> plans(const ConvShape& shape) const = 0;
  // Whether these are all that a build() without time limit would give.
  virtual bool is_complete(const ConvShape& shape) const = 0;
};

// Which of cuDNN's kernels may be used.
struct ConvRules {
  bool deterministic = false;
  bool tf32 = false;  // fp32 convolutions may round their inputs to tf32
};

std::unique_ptr<ConvLibrary> make_conv_library(const ConvRules& rules);
std::string cudnn_version();  // "9.19.0"

}  // namespace redline::backend::cuda
