// Tensor maps: the descriptions of tensors that TMA works from.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

// A packed tensor, its dimensions from the fastest on, and the box of it that one copy moves. With
// `swizzled`, a box's rows are 128 bytes wide and lie swizzled in shared memory. Empty where `data` is null
// or the driver has no TMA.
CUtensorMap describe_tensor(const void* data, CUtensorMapDataType type, std::size_t element_bytes,
                            std::span<const std::int64_t> size, std::span<const int> box, bool swizzled);
// A matrix of f16 or bf16, in swizzled boxes of `box_rows` rows by 64 columns.
CUtensorMap describe_rows(const void* data, Type type, std::int64_t rows, int columns, int box_rows);

}  // namespace redline::backend::cuda
