// The passes of Pillow's resizing. For kernels: built for the instruction set of the file that includes it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "data/images/kernels/kernels.h"

namespace redline::data::REDLINE_ISA {

// Rounds the sums of two output pixels to bytes and stores them; the second is left out if there is none.
inline void store_two(__m128i first, __m128i second, bool both, std::uint8_t* out) {
  const __m128i words =
      _mm_packs_epi32(_mm_srai_epi32(first, kExactBits), _mm_srai_epi32(second, kExactBits));
  const __m128i order = _mm_setr_epi8(0, 1, 2, 4, 5, 6, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m128i bytes = _mm_shuffle_epi8(_mm_packus_epi16(words, words), order);
  const auto six = static_cast<std::uint64_t>(_mm_cvtsi128_si64(bytes));
  std::memcpy(out, &six, 3);
  const std::uint64_t rest = six >> 24;
  if (both) std::memcpy(out + 3, &rest, 3);
}

// Two taps of two outputs at a time, each r0 r1 g0 g1 b0 b1, against the upper and the lower bits of weights.
inline void exact_pixels(const std::uint8_t* row, const int* first, const std::int16_t* halves, int taps,
                         int outputs, std::uint8_t* out) {
  constexpr int kBits = kExactBits / 2;
  const auto load_pixels = [](const std::uint8_t* at) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
  };
  const __m128i pair = _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
  for (int i = 0; i < outputs; i += 2, out += 6) {
    const bool both = i + 1 < outputs;
    const std::uint8_t *in = row + first[i] * 3, *next = row + first[both ? i + 1 : i] * 3;
#if defined(__AVX2__)
    const __m256i pairs = _mm256_broadcastsi128_si256(pair);
    __m256i upper = _mm256_setzero_si256(), lower = _mm256_set1_epi32(1 << (kExactBits - 1));
    for (int k = 0; k < taps; k += 2, in += 6, next += 6, halves += 32) {
      const __m256i two = _mm256_shuffle_epi8(_mm256_set_m128i(load_pixels(next), load_pixels(in)), pairs);
      const auto* weights = reinterpret_cast<const __m256i*>(halves);
      upper = _mm256_add_epi32(upper, _mm256_madd_epi16(two, _mm256_loadu_si256(weights)));
      lower = _mm256_add_epi32(lower, _mm256_madd_epi16(two, _mm256_loadu_si256(weights + 1)));
    }
    const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(upper, kBits), lower);
    store_two(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1), both, out);
#else
    const __m128i half = _mm_set1_epi32(1 << (kExactBits - 1));
    __m128i upper[2] = {}, lower[2] = {half, half};
    for (int k = 0; k < taps; k += 2, in += 6, next += 6, halves += 32) {
      const auto* weights = reinterpret_cast<const __m128i*>(halves);
      for (int j = 0; j < 2; ++j) {
        const __m128i two = _mm_shuffle_epi8(load_pixels(j == 0 ? in : next), pair);
        upper[j] = _mm_add_epi32(upper[j], _mm_madd_epi16(two, _mm_loadu_si128(weights + j)));
        lower[j] = _mm_add_epi32(lower[j], _mm_madd_epi16(two, _mm_loadu_si128(weights + 2 + j)));
      }
    }
    store_two(_mm_add_epi32(_mm_slli_epi32(upper[0], kBits), lower[0]),
              _mm_add_epi32(_mm_slli_epi32(upper[1], kBits), lower[1]), both, out);
#endif
  }
}

inline void exact_rows(const std::uint8_t* source, std::ptrdiff_t stride, const std::int32_t* weights,
                       int taps, int count, std::uint8_t* out) {
  constexpr int kBlock = 64;
  for (int begin = 0; begin < count; begin += kBlock) {
    const int size = std::min(kBlock, count - begin);
    std::int32_t sums[kBlock];
    std::fill_n(sums, size, 1 << (kExactBits - 1));
    for (int k = 0; k < taps; ++k) {
      const std::uint8_t* row = source + k * stride + begin;
      for (int i = 0; i < size; ++i) sums[i] += row[i] * weights[k];
    }
    for (int i = 0; i < size; ++i)
      out[begin + i] = static_cast<std::uint8_t>(std::clamp(sums[i] >> kExactBits, 0, 255));
  }
}

}  // namespace redline::data::REDLINE_ISA
