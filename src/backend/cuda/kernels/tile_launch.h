// How kernels that are built from tiles (tiles.cuh) are launched: tensor maps, and prepared launches.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

// A prepared launch: tensor maps, shared memory and grid are known, and run() only queues it on a stream. A
// value; holds no memory.
struct TileLaunch {
  std::size_t partials = 0;  // floats of reduce space that it needs
  std::function<void(ReduceSpace space, cudaStream_t stream)> run;
};

// Tensor maps describe tensors to TMA: here packed tensors of f16 or bf16, in boxes that are 64 channels (128
// bytes) wide and swizzled in shared memory. Empty if `data` is null or the driver has no TMA. This one is of
// a matrix, in boxes of `box_rows` rows.
CUtensorMap describe_rows(const void* data, Type type, std::int64_t rows, int columns, int box_rows);

struct ImageShape {
  int images = 0, h = 0, w = 0, channels = 0;
};
inline ImageShape images_of(const graph::Shape& shape) {
  return {static_cast<int>(shape.n()), static_cast<int>(shape.h()), static_cast<int>(shape.w()),
          static_cast<int>(shape.c())};
}
// Images, in boxes of so many columns and rows of one image.
CUtensorMap describe_images(const void* data, Type type, const ImageShape& shape, int box_columns,
                            int box_rows);

}  // namespace redline::backend::cuda
