// Converts arrays between fp32 and the 16-bit types with the CPU's vector instructions; rounds like the
// scalar conversions of half.h (a NaN stays a NaN, but its bits may differ).
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/tensor.h"

namespace redline::graph {

// `type` is f16 or bf16. Arrays of `count` values that do not overlap, but for sums in place.
void to_halves(DType type, const float* from, std::uint16_t* to, std::size_t count);
void from_halves(DType type, const std::uint16_t* from, float* to, std::size_t count);
// sums[i] = a[i] + b[i], rounded once.
void add_halves(DType type, const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* sums,
                std::size_t count);

}  // namespace redline::graph
