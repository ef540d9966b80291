// 3x3 convolutions of stride 1 on Hopper, forward and backward, with the work of the batch norms around them:
// a norm and ReLU on the way in, and on the way out the sums that the next norm needs, or the gate and the
// sums of the norm that a gradient arrives at.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/tile_launch.h"

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

// tile_size: one of conv3x3::tile_sizes().
TileLaunch conv3x3_conv(const Conv3x3& work, const cudaDeviceProp& device, int tile_size);

}  // namespace redline::backend::cuda
