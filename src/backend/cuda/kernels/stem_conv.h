// The stem's convolution, 7x7 of stride two over three channels, by Hopper's wgmma: forward with the norm's
// sums, and the weights' gradient. In shared memory, with four channels per pixel, the windows of
// neighbouring outputs start sixteen bytes apart, so wgmma can read them in place, without im2col.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/tile_launch.h"

namespace redline::backend::cuda {

struct StemShape {
  Type type = Type::f16;
  ImageShape in{};
  int filters = 0;
  int kernel = 0, stride = 0, pad = 0;

  bool possible() const;
  __host__ __device__ int out_h() const { return in.h / 2; }
  __host__ __device__ int out_w() const { return in.w / 2; }
};

// x: [images, h, w, 4]. weights: [64, 7, 7, 4]. y: [images, h / 2, w / 2, 64]. sums: ? [2, 64] of y and its
// squares.
TileLaunch stem_forward(const StemShape& shape, const cudaDeviceProp& device, const void* x,
                        const void* weights, void* y, float* sums);
// x as above, dy as y, dw as the weights, of type `dw_type`. Its reduce space needs no counters.
TileLaunch stem_weight_gradient(const StemShape& shape, const cudaDeviceProp& device, const void* x,
                                const void* dy, void* dw, Type dw_type);

}  // namespace redline::backend::cuda
