// The gradients of a 1x1 convolution that expands 64 channels to 256, and of the norm behind it, in one pass:
// the last convolution of a bottleneck block of the first stage, where images are largest. The gradient of
// the convolution's output, four times as large as its input, never goes through memory. It is a kernel of
// its own beside the GEMMs of gemm.h because both gradients, dx and dw, are made of each tile of it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/tile_launch.h"

namespace redline::backend::cuda {

struct ExpandGrad {
  static constexpr int kFrom = 64, kTo = 256;  // channels

  Type type = Type::f16;  // f16 or bf16
  std::int64_t rows = 0;
  NormGradApply norm{};           // behind the convolution, ungated: [rows, kTo]. Its dy is not written.
  const void* x = nullptr;        // [rows, kFrom]: what the convolution read or, with `before`, y of it
  const void* weights = nullptr;  // [kTo][kFrom]
  void* dx = nullptr;             // as x; not over any input
  void* dw = nullptr;             // as the weights
  Type dw_type = Type::f16;
  // Where the convolution read relu(affine(y)): dx is gated by it, with the two sums of its norm's gradient.
  bool before = false;
  const float *affine = nullptr, *saved = nullptr;  // [2, kFrom] each
  float *dgamma = nullptr, *dbeta = nullptr;
};

TileLaunch expand_grad(const ExpandGrad& work, const cudaDeviceProp& device);

}  // namespace redline::backend::cuda
