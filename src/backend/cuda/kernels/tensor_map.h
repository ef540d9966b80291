// Tensor maps: the descriptions of tensors that TMA works from.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

// Both of packed tensors of f16 or bf16, in boxes that are 64 channels (128 bytes) wide and lie swizzled in
// shared memory. Empty where `data` is null or the driver has no TMA.

// A matrix, in boxes of so many rows.
CUtensorMap describe_rows(const void* data, Type type, std::int64_t rows, int columns, int box_rows);

struct ImageShape {
  int images, h, w, channels;
};
// Images, in boxes of so many columns and rows of one image.
CUtensorMap describe_images(const void* data, Type type, const ImageShape& shape, int box_columns,
                            int box_rows);

}  // namespace redline::backend::cuda
