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

#if defined(__AVX2__)

// The same transform from 16-bit values, two of which are multiplied and added at a time. Interleaved rows 0
// and 4, 2 and 6, 1 and 7, 3 and 5 go in; 16-bit rows 0 and 1, 2 and 3, ... come out, halves of four side by
// side. What does not fit 16 bits, in damaged files, is cut off.
template <int kShift>
REDLINE_INLINE void transform_pairs(__m256i r04, __m256i r26, __m256i r17, __m256i r35, __m256i (&out)[4]) {
  const auto times = [](__m256i pair, int first, int second) {
    return _mm256_madd_epi16(pair, _mm256_set1_epi32((second << 16) | (first & 0xffff)));
  };
  const auto sum = [](__m256i a, __m256i b) { return _mm256_add_epi32(a, b); };
  const auto shifted = [](__m256i a) { return _mm256_srai_epi32(a, kShift); };
  const __m256i half = _mm256_set1_epi32(1 << (kShift - 1));
  constexpr int c541 = 4433, c765 = 6270, c1847 = 15137;
  const __m256i e0 = sum(times(r04, 8192, 8192), half), e1 = sum(times(r04, 8192, -8192), half);
  const __m256i e2 = times(r26, c541, c541 - c1847), e3 = times(r26, c541 + c765, c541);
  const __m256i a0 = sum(e0, e3), a3 = _mm256_sub_epi32(e0, e3);
  const __m256i a1 = sum(e1, e2), a2 = _mm256_sub_epi32(e1, e2);
  // The odd rows' sums of sums above, multiplied out.
  constexpr int z5 = 9633, z1 = -7373, z2 = -20995, z3 = z5 - 16069, z4 = z5 - 3196;
  const __m256i o0 = sum(times(r17, z1 + z5, 2446 + z1 + z3), times(r35, z3, z5));
  const __m256i o1 = sum(times(r17, z4, z5), times(r35, z2 + z5, 16819 + z2 + z4));
  const __m256i o2 = sum(times(r17, z5, z3), times(r35, 25172 + z2 + z3, z2 + z5));
  const __m256i o3 = sum(times(r17, 12299 + z1 + z4, z1 + z5), times(r35, z5, z4));
  out[0] = _mm256_packs_epi32(shifted(sum(a0, o3)), shifted(sum(a1, o2)));
  out[1] = _mm256_packs_epi32(shifted(sum(a2, o1)), shifted(sum(a3, o0)));
  out[2] = _mm256_packs_epi32(shifted(_mm256_sub_epi32(a3, o0)), shifted(_mm256_sub_epi32(a2, o1)));
  out[3] = _mm256_packs_epi32(shifted(_mm256_sub_epi32(a1, o2)), shifted(_mm256_sub_epi32(a0, o3)));
}

// Rows as transform_pairs gives them to columns: 0 | 4, 1 | 5, 2 | 6, 3 | 7.
REDLINE_INLINE void transpose_pairs(__m256i (&r)[4]) {
  const __m256i a = _mm256_unpacklo_epi16(r[0], r[1]), b = _mm256_unpackhi_epi16(r[0], r[1]);
  const __m256i c = _mm256_unpacklo_epi16(r[2], r[3]), d = _mm256_unpackhi_epi16(r[2], r[3]);
  const __m256i top01 = _mm256_unpacklo_epi16(a, b), top23 = _mm256_unpackhi_epi16(a, b);
  const __m256i low01 = _mm256_unpacklo_epi16(c, d), low23 = _mm256_unpackhi_epi16(c, d);
  r[0] = _mm256_unpacklo_epi64(top01, low01);
  r[1] = _mm256_unpackhi_epi64(top01, low01);
  r[2] = _mm256_unpacklo_epi64(top23, low23);
  r[3] = _mm256_unpackhi_epi64(top23, low23);
}

// The two halves of a vector, value by value side by side.
REDLINE_INLINE __m256i interleaved(__m256i halves) {
  const __m256i order =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
  return _mm256_shuffle_epi8(_mm256_permute4x64_epi64(halves, 0b11'01'10'00), order);
}

REDLINE_INLINE void idct_full(const std::int16_t* coefficients, const std::int16_t* steps, std::uint8_t* out,
                              std::ptrdiff_t stride) {
  const auto row = [](const std::int16_t* values, int v) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(values + 8 * v));
  };
  const auto rows = [&](int first, int second) {
    const __m256i c = _mm256_set_m128i(row(coefficients, second), row(coefficients, first));
    const __m256i q = _mm256_set_m128i(row(steps, second), row(steps, first));
    return interleaved(_mm256_mullo_epi16(c, q));
  };
  __m256i r[4];
  transform_pairs<kConstantBits - kPassBits>(rows(0, 4), rows(2, 6), rows(1, 7), rows(3, 5), r);
  transpose_pairs(r);
  const __m256i c17 = _mm256_permute2x128_si256(r[1], r[3], 0x30),
                c35 = _mm256_permute2x128_si256(r[3], r[1], 0x30);
  transform_pairs<kConstantBits + kPassBits + 3>(interleaved(r[0]), interleaved(r[2]), interleaved(c17),
                                                 interleaved(c35), r);
  transpose_pairs(r);
  const __m256i middle = _mm256_set1_epi16(128);
  // Packing saturates: rows 0, 1 | 4, 5 and 2, 3 | 6, 7.
  for (int k = 0; k < 2; ++k) {
    const __m256i bytes =
        _mm256_packus_epi16(_mm256_adds_epi16(r[2 * k], middle), _mm256_adds_epi16(r[2 * k + 1], middle));
    for (int half = 0; half < 2; ++half) {
      const __m128i two = half == 0 ? _mm256_castsi256_si128(bytes) : _mm256_extracti128_si256(bytes, 1);
      std::uint8_t* to = out + (4 * half + 2 * k) * stride;
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to), two);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to + stride), _mm_unpackhi_epi64(two, two));
    }
  }
}

#else

REDLINE_INLINE void idct_full(const std::int16_t* coefficients, const std::int16_t* steps, std::uint8_t* out,
                              std::ptrdiff_t stride) {
  using Narrow = std::int16_t __attribute__((vector_size(16)));
  Lanes rows[8];
  for (int v = 0; v < 8; ++v) {
    Narrow c, q;
    std::memcpy(&c, coefficients + 8 * v, sizeof(c));
    std::memcpy(&q, steps + 8 * v, sizeof(q));
    rows[v] = reinterpret_cast<Lanes>(__builtin_convertvector(c, SignedLanes) *
                                      __builtin_convertvector(q, SignedLanes));
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

#endif

// cos((2 x + 1) u π / 2 N) · (u ? sqrt(2) : 1), in units of 1 / 8192: the N-point transform of the N lowest
// frequencies, scaled so that a flat block keeps its level.
constexpr std::int32_t kBasis4[4][4] = {{8192, 8192, 8192, 8192},
                                        {10703, 4433, -4433, -10703},
                                        {8192, -8192, -8192, 8192},
                                        {4433, -10703, 10703, -4433}};
constexpr std::int32_t kBasis2[2][2] = {{8192, 8192}, {8192, -8192}};

template <int N>
REDLINE_INLINE void idct_small(const std::int32_t (&basis)[N][N], const std::int16_t* coefficients,
                               const std::int16_t* steps, std::uint8_t* out, std::ptrdiff_t stride) {
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
REDLINE_INLINE void idct(int shrink, const std::int16_t* coefficients, const std::int16_t* steps,
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
