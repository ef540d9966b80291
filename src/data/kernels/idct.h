// The inverse cosine transform of one 8 × 8 block of a JPEG. For kernels: everything is inlined, and built
// for the instruction set of the file that includes it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

namespace redline::data::REDLINE_ISA {

// Eight 32-bit integers; the compiler makes of them what the machine has. Unsigned, since a damaged file may
// hold coefficients that overflow: the pixels are then wrong, and nothing else.
using Lanes = std::uint32_t __attribute__((vector_size(32)));
using SignedLanes = std::int32_t __attribute__((vector_size(32)));

#define REDLINE_INLINE inline __attribute__((always_inline))

constexpr int kConstantBits = 13;
constexpr int kPassBits = 2;  // of fraction that the first pass keeps

constexpr std::uint32_t fixed(double value) {
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(value * (1 << kConstantBits) + 0.5));
}

REDLINE_INLINE void put(Lanes& to, const Lanes& sum, int shift) {
  to = reinterpret_cast<Lanes>(reinterpret_cast<const SignedLanes&>(sum) >> shift);
}

// Eight 8-point transforms side by side: Loeffler, Ligtenberg and Moschytz' scheme with 12 multiplications,
// as in "Practical fast 1-D DCT algorithms with 11 multiplications". Results are scaled by 2^13 · sqrt(8),
// and then divided by 2^shift.
REDLINE_INLINE void transform(Lanes (&r)[8], int shift) {
  const Lanes half = Lanes{} + (1U << (shift - 1));
  // Even rows.
  const Lanes both = (r[2] + r[6]) * fixed(0.541196100);
  const Lanes e2 = both - r[6] * fixed(1.847759065);
  const Lanes e3 = both + r[2] * fixed(0.765366865);
  const Lanes e0 = (r[0] + r[4]) << kConstantBits;
  const Lanes e1 = (r[0] - r[4]) << kConstantBits;
  const Lanes a0 = e0 + e3 + half, a3 = e0 - e3 + half;
  const Lanes a1 = e1 + e2 + half, a2 = e1 - e2 + half;
  // Odd rows.
  const Lanes z5 = (r[7] + r[3] + r[5] + r[1]) * fixed(1.175875602);
  const Lanes z1 = (r[7] + r[1]) * -fixed(0.899976223);
  const Lanes z2 = (r[5] + r[3]) * -fixed(2.562915447);
  const Lanes z3 = (r[7] + r[3]) * -fixed(1.961570560) + z5;
  const Lanes z4 = (r[5] + r[1]) * -fixed(0.390180644) + z5;
  const Lanes o0 = r[7] * fixed(0.298631336) + z1 + z3;
  const Lanes o1 = r[5] * fixed(2.053119869) + z2 + z4;
  const Lanes o2 = r[3] * fixed(3.072711026) + z2 + z3;
  const Lanes o3 = r[1] * fixed(1.501321110) + z1 + z4;
  put(r[0], a0 + o3, shift);
  put(r[7], a0 - o3, shift);
  put(r[1], a1 + o2, shift);
  put(r[6], a1 - o2, shift);
  put(r[2], a2 + o1, shift);
  put(r[5], a2 - o1, shift);
  put(r[3], a3 + o0, shift);
  put(r[4], a3 - o0, shift);
}

// Levels to bytes in 16 bits, around the middle of the range.
REDLINE_INLINE __m128i pack(const Lanes& levels) {
  __m128i halves[2];
  std::memcpy(halves, &levels, sizeof(halves));
  return _mm_adds_epi16(_mm_packs_epi32(halves[0], halves[1]), _mm_set1_epi16(128));
}

REDLINE_INLINE void transpose(Lanes (&r)[8]) {
  Lanes a[8], b[8];
  for (int i = 0; i < 4; ++i) {  // pairs of rows 2i, 2i + 1
    a[2 * i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    a[2 * i + 1] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 2; ++i) {
    const int o = 4 * i;
    b[o] = __builtin_shufflevector(a[o], a[o + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    b[o + 1] = __builtin_shufflevector(a[o], a[o + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    b[o + 2] = __builtin_shufflevector(a[o + 1], a[o + 3], 0, 1, 8, 9, 4, 5, 12, 13);
    b[o + 3] = __builtin_shufflevector(a[o + 1], a[o + 3], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    r[i + 4] = __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

REDLINE_INLINE void idct_full(const std::int16_t* coefficients, const std::int32_t* steps, std::uint8_t* out,
                              std::ptrdiff_t stride) {
  using Narrow = std::int16_t __attribute__((vector_size(16)));
  Lanes rows[8];
  for (int v = 0; v < 8; ++v) {
    Narrow c;
    Lanes q;
    std::memcpy(&c, coefficients + 8 * v, sizeof(c));
    std::memcpy(&q, steps + 8 * v, sizeof(q));
    rows[v] = reinterpret_cast<Lanes>(__builtin_convertvector(c, SignedLanes)) * q;
  }
  transform(rows, kConstantBits - kPassBits);
  transpose(rows);
  transform(rows, kConstantBits + kPassBits + 3);
  transpose(rows);
  for (int y = 0; y < 8; y += 2) {
    // Packing saturates.
    const __m128i first = pack(rows[y]), second = pack(rows[y + 1]);
    const __m128i bytes = _mm_packus_epi16(first, second);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out + y * stride), bytes);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out + (y + 1) * stride), _mm_unpackhi_epi64(bytes, bytes));
  }
}

// cos((2 x + 1) u π / 2 N) · (u ? sqrt(2) : 1), in units of 1 / 8192: the N-point transform of the N lowest
// frequencies, scaled so that a flat block keeps its level.
constexpr std::int32_t kBasis4[4][4] = {{8192, 8192, 8192, 8192},
                                        {10703, 4433, -4433, -10703},
                                        {8192, -8192, -8192, 8192},
                                        {4433, -10703, 10703, -4433}};
constexpr std::int32_t kBasis2[2][2] = {{8192, 8192}, {8192, -8192}};

template <int N>
REDLINE_INLINE void idct_small(const std::int32_t (&basis)[N][N], const std::int16_t* coefficients,
                               const std::int32_t* steps, std::uint8_t* out, std::ptrdiff_t stride) {
  std::int32_t across[N][N];  // [vertical frequency][x]
  for (int v = 0; v < N; ++v)
    for (int x = 0; x < N; ++x) {
      std::uint32_t sum = 1U << (kConstantBits - kPassBits - 1);
      for (int u = 0; u < N; ++u)
        sum += static_cast<std::uint32_t>(coefficients[8 * v + u] * steps[8 * v + u]) *
               static_cast<std::uint32_t>(basis[u][x]);
      across[v][x] = static_cast<std::int32_t>(sum) >> (kConstantBits - kPassBits);
    }
  for (int y = 0; y < N; ++y)
    for (int x = 0; x < N; ++x) {
      constexpr int kShift = kConstantBits + kPassBits + 3;
      std::uint32_t sum = 1U << (kShift - 1);
      for (int v = 0; v < N; ++v)
        sum += static_cast<std::uint32_t>(across[v][x]) * static_cast<std::uint32_t>(basis[v][y]);
      const std::int32_t level = static_cast<std::int32_t>(sum) >> kShift;
      out[y * stride + x] = static_cast<std::uint8_t>(std::clamp(level + 128, 0, 255));
    }
}

// Coefficients and quantisation steps row by row (vertical frequency first), pixels 0..255 into rows `stride`
// bytes apart: 8 / shrink of them, each as long. Integer arithmetic: the same on every machine. At full size
// the result is that of libjpeg's accurate method.
REDLINE_INLINE void idct(int shrink, const std::int16_t* coefficients, const std::int32_t* steps,
                         std::uint8_t* out, std::ptrdiff_t stride) {
  switch (shrink) {
    case 1:
      return idct_full(coefficients, steps, out, stride);
    case 2:
      return idct_small(kBasis4, coefficients, steps, out, stride);
    case 4:
      return idct_small(kBasis2, coefficients, steps, out, stride);
    default:
      *out = static_cast<std::uint8_t>(std::clamp(((coefficients[0] * steps[0] + 4) >> 3) + 128, 0, 255));
  }
}

}  // namespace redline::data::REDLINE_ISA
