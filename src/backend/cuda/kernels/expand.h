// The 1x1 convolution that expands 64 channels to 256, and what the norms around it want, in one pass: at the
// largest size that images have in bottleneck blocks, where all that counts is what goes through memory. Of a
// norm and ReLU in front, neither is done apart, nor is their result written.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

struct Expand {
  static constexpr int kFrom = 64, kTo = 256;  // channels

  Type type = Type::f16;  // f16 or bf16
  std::int64_t rows = 0;
  const void* x = nullptr;        // [rows, kFrom]: what the convolution reads or, with `before`, y of it
  const void* weights = nullptr;  // [kTo][kFrom]
  void* out = nullptr;            // [rows, kTo]; not over x
  float* sums = nullptr;          // [2, kTo]: of what is written, and of its squares
  // Where the convolution reads relu(norm(y)), rounded as if it had been stored. The norm is worked out from
  // its own sums, as affine_act does with `finalize`.
  bool before = false;
  NormFinalize norm{};

  static bool possible(Type type, const cudaDeviceProp& device) {
    return device.major == 9 && type != Type::f32;
  }
};

class ExpandLaunch {
 public:
  ExpandLaunch(const Expand& work, const cudaDeviceProp& device);
  std::size_t partials() const;  // floats of reduce space
  void run(ReduceSpace space, cudaStream_t stream) const;

 private:
  Expand work_;
  CUtensorMap x_{}, weights_{};
  int blocks_ = 1;
};

}  // namespace redline::backend::cuda
