// 3x3 convolutions of stride 1 on Hopper, forward and backward, with the work of the batch norms around them:
// a norm and ReLU on the way in, and on the way out the sums that the next norm needs, or the gate and the
// sums of the norm that a gradient arrives at.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

struct Conv3x3 {
  Type type = Type::f16;  // f16 or bf16
  int images = 0, h = 0, w = 0;
  int from = 0, to = 0;           // channels that are read and written
  bool gradient = false;          // the input gradient: `from` are the filters, `to` what they read
  const void* x = nullptr;        // [images, h, w, from]
  const void* weights = nullptr;  // [filters][3][3][channels]
  void* out = nullptr;            // [images, h, w, to]; not over x

  // Forward: the convolution reads relu(norm(x)), rounded as if it had been stored. The norm is worked out
  // from its own sums, as affine_act does with `finalize`.
  NormFinalize norm{};
  void* activated = nullptr;  // ? as x: relu(norm(x)) for later ops
  float* sums = nullptr;      // [2, to]: of what is written, and of its squares

  // Gradient, of a convolution that read relu(affine(y)): `out` is gated by it.
  const void* y = nullptr;                          // as out
  const float *affine = nullptr, *saved = nullptr;  // [2, to] each
  float *dgamma = nullptr, *dbeta = nullptr;        // of the norm of y

  static constexpr int kMost = 512;  // channels
};

// What TMA moves of it: see conv3x3.cu.
struct Conv3x3Maps {
  CUtensorMap x, weights, out;
  CUtensorMap y;          // of gradients
  CUtensorMap activated;  // of the forward convolution
};

class Conv3x3Launch {
 public:
  // tile_size: one of conv3x3::tile_sizes().
  Conv3x3Launch(const Conv3x3& work, const cudaDeviceProp& device, int tile_size);
  std::size_t partials() const;  // floats of reduce space
  void run(ReduceSpace space, cudaStream_t stream) const;

 private:
  Conv3x3 work_;
  Conv3x3Maps maps_{};
  int tile_size_;
  int blocks_ = 1;
  int x_stages_ = 3;
  std::size_t shared_bytes_ = 0;
};

}  // namespace redline::backend::cuda
