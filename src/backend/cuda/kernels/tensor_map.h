// Tensors described to Hopper's copy engine.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

// Dimensions from the fastest on, packed. Boxes are moved at once; those of matrices whose rows are 128 bytes
// wide are swizzled. Empty where there is no data or no such engine.
CUtensorMap describe_tensor(const void* data, CUtensorMapDataType type, std::size_t element_bytes,
                            std::span<const std::int64_t> size, std::span<const int> box, bool swizzled);
// A matrix of f16 or bf16, moved in swizzled boxes of 64 columns by `box_rows`.
CUtensorMap describe_rows(const void* data, Type type, std::int64_t rows, int columns, int box_rows);

}  // namespace redline::backend::cuda
