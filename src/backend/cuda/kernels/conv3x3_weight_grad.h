// The weight gradient of 3x3 convolutions of stride 1 on Hopper, with the norm and ReLU that the convolution
// read its input through: what they gave need not have been stored.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/tile_launch.h"

namespace redline::backend::cuda {

struct Conv3x3WeightGrad {
  Type type = Type::f16;  // f16 or bf16
  int images = 0, h = 0, w = 0;
  int from = 0, to = 0;           // channels; multiples of 64
  const void* x = nullptr;        // [images, h, w, from]
  const float* affine = nullptr;  // ? [2, from]: the convolution read relu(affine(x))
  const void* dy = nullptr;       // [images, h, w, to]
  void* dw = nullptr;             // [to][3][3][from]
  Type dw_type = Type::f32;
};

// For shapes that conv3x3::DeepCut allows. Its reduce space needs no counters.
TileLaunch conv3x3_weight_grad(const Conv3x3WeightGrad& work, const cudaDeviceProp& device);

}  // namespace redline::backend::cuda
