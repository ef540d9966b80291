// What Hopper's own instructions do, for the thread that runs: barriers in shared memory, copies by TMA, and
// products of matrices by the warps of a group.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "block.h"

namespace redline::emulator {

inline float to_float(float value) { return value; }
inline float to_float(__half value) { return __half2float(value); }
inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
template <typename T>
T rounded(float value);
template <>
inline float rounded(float value) {
  return value;
}
template <>
inline __half rounded(float value) {
  return __float2half_rn(value);
}
template <>
inline __nv_bfloat16 rounded(float value) {
  return __float2bfloat16_rn(value);
}

// --- Barriers in shared memory ---

void barrier_init(std::uint64_t* barrier, unsigned arrivals);
void barrier_arrive(std::uint64_t* barrier);
void barrier_expect(std::uint64_t* barrier, unsigned bytes);
void barrier_complete(std::uint64_t* barrier, unsigned bytes);
void barrier_wait(std::uint64_t* barrier, unsigned parity);

// --- TMA ---

void load_box(void* to, const CUtensorMap& map, std::initializer_list<int> at, std::uint64_t* barrier);
void store_box(const CUtensorMap& map, std::initializer_list<int> at, const void* from);
// Throws InternalError unless addresses and size are multiples of sixteen.
void check_bulk(const void* to, const void* from, unsigned bytes);

// --- Matrices of 8 x 8 between registers and shared memory, by a warp ---

void load_matrices(std::uint32_t (&to)[4], const void* row, bool transposed);
void store_matrices(void* row, const std::uint32_t (&from)[4], bool transposed);

// --- Products ---

// In shared memory, as a descriptor of wgmma says; `transposed`: rows in memory run across K.
struct Matrix {
  std::uint64_t descriptor;
  bool transposed;
  std::uint16_t at(int row, int k) const;  // the bits of an element; `row` is along M or N
};

// d (+)= a * b by a warp group; d has 2 * `sums` columns. Registers are laid out as wgmma's. No thread goes
// on before the product is complete, so one thread can say for all four warps that an operand may be
// overwritten.
using ToFloat = float (*)(std::uint16_t bits);
void multiply(float* d, int sums, const Matrix& a, const Matrix& b, bool add, ToFloat to_float);
void multiply(float* d, int sums, const std::uint32_t (&a)[4], const Matrix& b, bool add, ToFloat to_float);

template <typename T, typename A>
void multiply(float* d, int sums, const A& a, const Matrix& b, bool add) {
  multiply(d, sums, a, b, add, [](std::uint16_t bits) { return to_float(std::bit_cast<T>(bits)); });
}

}  // namespace redline::emulator
