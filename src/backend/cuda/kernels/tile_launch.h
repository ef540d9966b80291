// A launch of a kernel that is built from tiles (tiles.cuh), made ready: tensor maps, shared memory and
// number of blocks are settled, and what is left is to put it on a stream. A value; holds no memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

struct TileLaunch {
  std::size_t partials = 0;  // floats of reduce space that it needs
  std::function<void(ReduceSpace space, cudaStream_t stream)> run;
};

}  // namespace redline::backend::cuda
