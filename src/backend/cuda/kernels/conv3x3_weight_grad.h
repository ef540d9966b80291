// The weight gradient of 3x3 convolutions of 64 channels and stride 1 on Hopper, with the norm and ReLU that
// the convolution read its input through: what they gave need not have been stored. (With more channels
// cuDNN's is faster, also with the norm in a pass of its own.)
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/tile_launch.h"

namespace redline::backend::cuda {

struct Conv3x3WeightGrad {
  Type type = Type::f16;  // f16 or bf16
  int images = 0, h = 0, w = 0;
  const void* x = nullptr;        // [images, h, w, 64]
  const float* affine = nullptr;  // [2, 64]: the convolution read relu(affine(x))
  const void* dy = nullptr;       // as x
  void* dw = nullptr;             // [64][3][3][64]
  Type dw_type = Type::f32;
};

// For shapes that conv3x3::DeepCut allows. Its reduce space needs no counters.
TileLaunch conv3x3_weight_grad(const Conv3x3WeightGrad& work, const cudaDeviceProp& device);

}  // namespace redline::backend::cuda
