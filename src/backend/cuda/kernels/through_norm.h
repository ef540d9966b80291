// The way of a gradient back through a norm, the 1x1 convolution in front of it and the ReLU in front of
// that, to the sums of the norm before, in one pass. What leaves the first norm is written, for the
// convolution's weight gradient, but not read again here.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

struct ThroughNorm {
  Type type = Type::f16;  // f16 or bf16
  std::int64_t rows = 0;
  int from = 0, to = 0;           // channels of what the convolution reads, and of what it gives
  NormGradApply norm{};           // behind the convolution, ungated: [rows, to]. Its dy may lie over its g.
  const void* weights = nullptr;  // [to][from]
  // The convolution read relu(affine(y)).
  const void* y = nullptr;                          // [rows, from]
  const float *affine = nullptr, *saved = nullptr;  // [2, from] each
  void* dx = nullptr;                               // as y, gated; not over any input
  float *dgamma = nullptr, *dbeta = nullptr;

  static constexpr std::int64_t kMostTo = 1024;
  // On Hopper.
  static bool possible(std::int64_t from, std::int64_t to) {
    return (from == 128 || from == 256) && to % 128 == 0 && to <= kMostTo;
  }
};

class ThroughNormLaunch {
 public:
  ThroughNormLaunch(const ThroughNorm& work, const cudaDeviceProp& device);
  std::size_t partials() const;  // floats of reduce space
  void run(ReduceSpace space, cudaStream_t stream) const;

 private:
  ThroughNorm work_;
  CUtensorMap g_{}, after_{}, weights_{}, before_{}, dy_{}, dx_{};
  int blocks_ = 1;
};

}  // namespace redline::backend::cuda
