// How kernels that are built from tiles (tiles.cuh) are launched: prepared launches, and tensor maps.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

// A prepared launch: tensor maps, shared memory and grid are known, and run() only queues it on a stream. A
// value; it owns no device memory.
struct TileLaunch {
  std::size_t partials = 0;  // floats that it needs in the reduce space
  std::function<void(ReduceSpace space, cudaStream_t stream)> run;
};

// A tensor map describes to TMA a tensor, and the box of it that one copy moves. Here tensors are packed, of
// f16 or bf16; boxes are 64 channels (128 bytes) wide, and swizzled in shared memory. The map is empty if
// `data` is null or the driver has no TMA. This one is of a matrix, in boxes of `box_rows` rows.
CUtensorMap describe_rows(const void* data, Type type, std::int64_t rows, int columns, int box_rows);

struct ImageShape {
  int images = 0, h = 0, w = 0, channels = 0;
};
inline ImageShape images_of(const graph::Shape& shape) {
  return {static_cast<int>(shape.n()), static_cast<int>(shape.h()), static_cast<int>(shape.w()),
          static_cast<int>(shape.c())};
}
// Images, in boxes of some rows and columns of one image.
CUtensorMap describe_images(const void* data, Type type, const ImageShape& shape, int box_columns,
                            int box_rows);

}  // namespace redline::backend::cuda
