// Convolutions in the place of cuDNN's: plain loops, one plan for a shape.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <utility>

#include "backend/cuda/cudnn.h"
#include "base/error.h"
#include "device.h"
#include "tensor_core.h"

namespace redline::backend::cuda {
namespace {

using emulator::rounded;
using emulator::to_float;

// Calls visit(x's index, w's, y's) for every product of a convolution of NHWC activations and KRSC weights.
template <typename Visit>
void for_each_product(const ConvShape& s, const Visit& visit) {
  const std::int64_t each = s.filter_channels(), filters = s.k / s.groups;
  for (std::int64_t n = 0; n < s.n; ++n) {
    for (std::int64_t p = 0; p < s.out_h * s.out_w; ++p) {
      for (int tap = 0; tap < s.kernel * s.kernel; ++tap) {
        const std::int64_t h = p / s.out_w * s.stride - s.pad + tap / s.kernel,
                           w = p % s.out_w * s.stride - s.pad + tap % s.kernel;
        if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
        const std::int64_t x = ((n * s.h + h) * s.w + w) * s.c, y = (n * s.out_h * s.out_w + p) * s.k;
        for (std::int64_t k = 0; k < s.k; ++k) {
          const std::int64_t filter = (k * s.kernel * s.kernel + tap) * each, first = x + k / filters * each;
          for (std::int64_t c = 0; c < each; ++c)
            visit(static_cast<std::size_t>(first + c), static_cast<std::size_t>(filter + c),
                  static_cast<std::size_t>(y + k));
        }
      }
    }
  }
}

template <typename T>
std::vector<float> floats(const void* from, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = to_float(static_cast<const T*>(from)[i]);
  return values;
}

template <typename T>
void convolve(const ConvShape& s, const ConvPointers& at) {
  const std::int64_t inputs = s.n * s.c * s.h * s.w, outputs = s.n * s.k * s.out_h * s.out_w,
                     weights = s.k * s.filter_channels() * s.kernel * s.kernel;
  const auto none = [](std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count)); };
  const bool writes_x = s.pass == ConvPass::grad_input, writes_w = s.pass == ConvPass::grad_weight;
  auto x = writes_x ? none(inputs) : floats<T>(at.x, inputs);
  auto w = writes_w ? none(weights) : floats<T>(at.w, weights);
  auto y = writes_x || writes_w ? floats<T>(at.y, outputs) : none(outputs);
  for_each_product(s, [&](std::size_t i, std::size_t j, std::size_t k) {
    if (writes_x)
      x[i] += w[j] * y[k];
    else if (writes_w)
      w[j] += x[i] * y[k];
    else
      y[k] += x[i] * w[j];
  });
  const auto store = [](void* to, const std::vector<float>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) static_cast<T*>(to)[i] = rounded<T>(values[i]);
  };
  if (writes_x) return store(at.x, x);
  if (writes_w) return store(at.w, w);
  store(at.y, y);
  if (s.pass != ConvPass::forward_sums) return;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const float value = to_float(rounded<T>(y[i]));
    float* sums = at.sums + static_cast<std::int64_t>(i) % s.k;
    sums[0] += value;
    sums[s.k] += value * value;
  }
}

// A grid of one thread, so that it takes its place in a graph.
void launch_loops(const ConvShape& shape, const ConvPointers& pointers, cudaStream_t stream) {
  if (shape.pass == ConvPass::forward_sums)  // as cuDNN does, whose kernels add to them
    cudaMemsetAsync(pointers.sums, 0, static_cast<std::size_t>(2 * shape.k) * sizeof(float), stream);
  emulator::launch({dim3(1), dim3(1)}, stream, [shape, pointers] {
    switch (shape.dtype) {
      case graph::DType::f16:
        return convolve<__half>(shape, pointers);
      case graph::DType::bf16:
        return convolve<__nv_bfloat16>(shape, pointers);
      default:
        return convolve<float>(shape, pointers);
    }
  });
}

class LoopLibrary final : public ConvLibrary {
 public:
  void build(std::vector<ConvRequest>, int, const std::function<bool()>&) override {}
  bool is_complete(const ConvShape&) const override { return true; }
  std::vector<std::shared_ptr<const ConvPlan>> plans(const ConvShape& shape) const override {
    return {std::make_shared<ConvPlan>(
        "loops", 0,
        [shape](const ConvPointers& at, void*, cudaStream_t stream) { launch_loops(shape, at, stream); })};
  }
};

}  // namespace

std::unique_ptr<ConvLibrary> make_conv_library(const ConvRules&) { return std::make_unique<LoopLibrary>(); }
std::string cudnn_version() { return "emulated"; }

}  // namespace redline::backend::cuda
