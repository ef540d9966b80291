// The stem's convolution, 7x7 of stride two over three channels, for Hopper's matrix units: forward with the
// norm's sums, and the weights' gradient. Libraries see 147 odd products per output; here an image of four
// channels in shared memory is read as it lies, since the windows of neighbouring outputs are sixteen bytes
// apart.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>

#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

struct StemShape {
  Type type = Type::f16;
  int images = 0, h = 0, w = 0;  // out: h / 2, w / 2
  int filters = 0;
  int kernel = 0, stride = 0, pad = 0;

  bool possible(const cudaDeviceProp& device) const;
};

class StemForward {
 public:
  // x: [images, h, w, 4]. weights: [64, 7, 7, 4]. y: [images, h / 2, w / 2, 64]. sums: ? [2, 64] of y and its
  // squares.
  StemForward(const StemShape& shape, const cudaDeviceProp& device, const void* x, const void* weights,
              void* y, float* sums);
  std::size_t partials() const;  // floats of reduce space
  void run(ReduceSpace space, cudaStream_t stream) const;

 private:
  StemShape shape_;
  const void *x_, *weights_;
  float* sums_;
  CUtensorMap y_{};
  int blocks_ = 1;
};

class StemWeightGradient {
 public:
  // x as above, dy as y, dw as the weights but of a type of its own.
  StemWeightGradient(const StemShape& shape, const cudaDeviceProp& device, const void* x, const void* dy,
                     void* dw, Type dw_type);
  std::size_t partials() const;  // floats of work space
  void run(float* partials, cudaStream_t stream) const;

 private:
  StemShape shape_;
  const void* x_;
  void* dw_;
  Type dw_type_;
  CUtensorMap dy_{};
  int blocks_ = 1;
};

}  // namespace redline::backend::cuda
