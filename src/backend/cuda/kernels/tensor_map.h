// Tensors described to Hopper's copy engine.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace redline::backend::cuda {

// Dimensions from the fastest on, packed. Boxes are moved at once; those of matrices whose rows are 128 bytes
// wide are swizzled. Empty where there is no data or no such engine.
CUtensorMap describe_tensor(const void* data, CUtensorMapDataType type, std::size_t element_bytes,
                            std::span<const std::int64_t> size, std::span<const int> box, bool swizzled);

}  // namespace redline::backend::cuda
