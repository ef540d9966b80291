// The gradients of a 1x1 convolution that expands 64 channels to 256, and of the norm behind it, in one pass:
// what a bottleneck block ends with, at the largest size that images have there. The gradient of the
// convolution's output, four times as large as its input, never goes through memory.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/expand.h"
#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

struct ExpandGrad {
  static constexpr int kFrom = Expand::kFrom, kTo = Expand::kTo;  // channels

  Type type = Type::f16;  // f16 or bf16
  std::int64_t rows = 0;
  NormGradApply norm{};           // behind the convolution, ungated: [rows, kTo]. Its dy is not written.
  const void* x = nullptr;        // [rows, kFrom]: what the convolution read or, with `before`, y of it
  const void* weights = nullptr;  // [kTo][kFrom]
  void* dx = nullptr;             // as x; not over any input
  void* dw = nullptr;             // as the weights
  Type dw_type = Type::f16;
  // Where the convolution read relu(affine(y)): its gate, and what its norm wants. The gradient is gated.
  bool before = false;
  const float *affine = nullptr, *saved = nullptr;  // [2, kFrom] each
  float *dgamma = nullptr, *dbeta = nullptr;
};

class ExpandGradLaunch {
 public:
  ExpandGradLaunch(const ExpandGrad& work, const cudaDeviceProp& device);
  std::size_t partials() const;  // floats of reduce space
  void run(ReduceSpace space, cudaStream_t stream) const;

 private:
  ExpandGrad work_;
  CUtensorMap g_{}, y_{}, x_{}, weights_{}, dx_{};
  int blocks_ = 1;
};

}  // namespace redline::backend::cuda
