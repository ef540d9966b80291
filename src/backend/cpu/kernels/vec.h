// Sixteen lanes of fp32, one per channel of a block, and their loads and stores in the storage types.
// Compiled once per instruction set (see kernels.h): everything here has internal linkage, so that code built
// for one CPU never serves another.
#pragma once

#include <stdint.h>
#include <string.h>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace redline::backend::cpu {
namespace {

constexpr int kLanes = 16;

typedef float V __attribute__((vector_size(64)));
typedef int32_t VI __attribute__((vector_size(64)));
typedef uint32_t VU __attribute__((vector_size(64)));
typedef uint16_t VH __attribute__((vector_size(32)));
typedef uint8_t VB __attribute__((vector_size(16)));

struct Bf16 {
  uint16_t bits;
};

inline V splat(float value) { return value - V{}; }

inline V load(const float* from) {
  V v;
  memcpy(&v, from, sizeof v);
  return v;
}
inline void store(float* to, V v) { memcpy(to, &v, sizeof v); }

inline V load(const Bf16* from) {
  VH half;
  memcpy(&half, from, sizeof half);
  return (V)(__builtin_convertvector(half, VU) << 16);
}

// Rounds to nearest even; NaN stays NaN.
inline void store(Bf16* to, V v) {
  const VU bits = (VU)v;
  const VU rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const VU nan = (bits >> 16) | 0x40U;
  const VI is_nan = v != v;
  const VH half = __builtin_convertvector(is_nan ? nan : rounded, VH);
  memcpy(to, &half, sizeof half);
}

// One bit per lane.
inline uint16_t bits_of(VI lanes) {
#ifdef __AVX512DQ__
  return static_cast<uint16_t>(_mm512_movepi32_mask((__m512i)lanes));
#else
  uint16_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits = static_cast<uint16_t>(bits | ((lanes[i] & 1) << i));
  return bits;
#endif
}

inline V keep(V v, uint16_t bits) {
#ifdef __AVX512F__
  return (V)_mm512_maskz_mov_ps(bits, (__m512)v);
#else
  const VU lane = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
  return ((lane & bits) != 0U) ? v : V{};
#endif
}

inline V keep(V v, VI lanes) { return lanes ? v : V{}; }

}  // namespace
}  // namespace redline::backend::cpu
