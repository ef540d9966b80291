// The passes of resizing. For kernels: built for the instruction set of the file that includes it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "data/images/kernels/kernels.h"

namespace redline::data::REDLINE_ISA {

inline double support_of(Interpolation filter) { return filter == Interpolation::bilinear ? 1.0 : 2.0; }

template <Interpolation kFilter>
REDLINE_INLINE double weight_at(double x) {
  x = std::fabs(x);
  if constexpr (kFilter == Interpolation::bilinear) return std::max(1.0 - x, 0.0);
  constexpr double a = -0.5;
  const double near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  const double far = (((x - 5.0) * x + 8.0) * x - 4.0) * a;
  return x < 1.0 ? near : x < 2.0 ? far : 0.0;
}

// Several outputs side by side: loops over lanes become vectors.
template <Interpolation kFilter>
inline void plan_lanes(const AxisPlan& plan, double* scratch, int* first, std::int16_t* weights) {
  const double scale = plan.length / plan.outputs;
  const double stretch = std::max(scale, 1.0);  // shrinking widens the filter, growing does not narrow it
  const double support = support_of(kFilter) * stretch, narrow = 1 / stretch;
  for (int i = 0; i < plan.outputs; i += kPlanLanes) {
    const int used = std::min(kPlanLanes, plan.outputs - i);
    double offset[kPlanLanes], sum[kPlanLanes] = {};
    int from[kPlanLanes], count[kPlanLanes];
    for (int lane = 0; lane < kPlanLanes; ++lane) {
      const double centre = plan.start + (i + lane + 0.5) * scale;
      const int begin = static_cast<int>(std::floor(centre - support + 0.5));
      const int end = std::min(plan.clip_end, static_cast<int>(std::floor(centre + support + 0.5)));
      // Rounding a box's edge can put it a hair outside the clip; the nearest pixel then stands for all.
      from[lane] = std::max(std::min(begin, plan.clip_end - 1), plan.clip_begin);
      count[lane] = std::max(end - from[lane], 1);
      offset[lane] = from[lane] + 0.5 - centre;
    }
    for (int k = 0; k < plan.taps; ++k) {
      double* to = scratch + k * kPlanLanes;
      for (int lane = 0; lane < kPlanLanes; ++lane) {
        const double weight = weight_at<kFilter>((offset[lane] + k) * narrow);
        to[lane] = k < count[lane] ? weight : 0.0;
        sum[lane] += to[lane];
      }
    }
    // Sums are rounded, and weights are their differences: so they still add up to one.
    double total[kPlanLanes] = {};
    int before[kPlanLanes] = {};
    for (int lane = 0; lane < kPlanLanes; ++lane) {
      if (sum[lane] <= 0) scratch[lane] = sum[lane] = 1;
      sum[lane] = (1 << kWeightBits) / sum[lane];
    }
    for (int k = 0; k < plan.taps; ++k) {
      const double* weight = scratch + k * kPlanLanes;
      std::int16_t rounded[kPlanLanes];
      for (int lane = 0; lane < kPlanLanes; ++lane) {
        total[lane] += weight[lane] * sum[lane];
        const int now = static_cast<int>(std::floor(total[lane] + 0.5));
        rounded[lane] = static_cast<std::int16_t>(std::clamp(now - before[lane], -32768, 32767));
        before[lane] = now;
      }
      for (int lane = 0; lane < used; ++lane) weights[lane * plan.taps + k] = rounded[lane];
    }
    std::copy_n(from, used, first + i);
    weights += used * plan.taps;
  }
}

inline void plan_axis(const AxisPlan& plan, double* scratch, int* first, std::int16_t* weights) {
  if (plan.filter == Interpolation::bilinear)
    plan_lanes<Interpolation::bilinear>(plan, scratch, first, weights);
  else
    plan_lanes<Interpolation::bicubic>(plan, scratch, first, weights);
}

// From a sum of weight times byte to a row's units.
inline std::int16_t to_row(std::int32_t sum) {
  constexpr int shift = kWeightBits - kRowBits;
  return static_cast<std::int16_t>((sum + (1 << (shift - 1))) >> shift);
}

#if defined(__AVX2__)

// Two rows at a time, the bytes of both side by side against their two weights, for kPairs pairs of rows: as
// many as most resizes need, so that their weights stay in registers.
template <int kPairs>
inline int blend_pairs(const std::uint8_t* source, std::ptrdiff_t stride, const std::int16_t* weights,
                       int taps, int count, std::int16_t* out) {
  constexpr int shift = kWeightBits - kRowBits;
  const __m256i half = _mm256_set1_epi32(1 << (shift - 1));
  __m256i weight[kPairs];
  const std::uint8_t* rows[2 * kPairs];
  for (int k = 0; k < 2 * kPairs; k += 2) {
    const bool pair = k + 1 < taps;
    const auto first = static_cast<std::uint16_t>(weights[k]);
    const auto second = static_cast<std::uint16_t>(pair ? weights[k + 1] : 0);
    weight[k / 2] = _mm256_set1_epi32(static_cast<int>(first | (std::uint32_t{second} << 16)));
    rows[k] = source + k * stride;
    rows[k + 1] = pair ? rows[k] + stride : rows[k];
  }
  for (int next = 0; next < count; next += 16) {
    const int i = std::min(next, count - 16);  // the last vector may repeat what is done
    __m256i low = half, high = half;
    for (int k = 0; k < kPairs; ++k) {
      const __m256i a =
          _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[2 * k] + i)));
      const __m256i b =
          _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[2 * k + 1] + i)));
      low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), weight[k]));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), weight[k]));
    }
    const __m256i row = _mm256_packs_epi32(_mm256_srai_epi32(low, shift), _mm256_srai_epi32(high, shift));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), row);
  }
  return count;
}

// Gives how many values it made: all, or none where there are too few of them or too many taps.
inline int blend_rows_wide(const std::uint8_t* source, std::ptrdiff_t stride, const std::int16_t* weights,
                           int taps, int count, std::int16_t* out) {
  if (count < 16) return 0;
  if (taps <= 2) return blend_pairs<1>(source, stride, weights, taps, count, out);
  if (taps <= 4) return blend_pairs<2>(source, stride, weights, taps, count, out);
  if (taps <= 6) return blend_pairs<3>(source, stride, weights, taps, count, out);
  if (taps <= 8) return blend_pairs<4>(source, stride, weights, taps, count, out);
  return 0;
}

#else

inline int blend_rows_wide(const std::uint8_t*, std::ptrdiff_t, const std::int16_t*, int, int,
                           std::int16_t*) {
  return 0;
}

#endif

inline void blend_rows(const std::uint8_t* source, std::ptrdiff_t stride, const std::int16_t* weights,
                       int taps, int count, std::int16_t* out) {
  constexpr int kBlock = 64;
  int size = 0;
  for (int begin = blend_rows_wide(source, stride, weights, taps, count, out); begin < count; begin += size) {
    size = std::min(kBlock, count - begin);
    std::int32_t sums[kBlock] = {};
    for (int k = 0; k < taps; ++k) {
      const std::uint8_t* row = source + k * stride + begin;
      for (int i = 0; i < size; ++i) sums[i] += row[i] * weights[k];
    }
    for (int i = 0; i < size; ++i) out[begin + i] = to_row(sums[i]);
  }
}

// Two taps of one pixel at a time: r0 r1 g0 g1 b0 b1 against w0 w1 w0 w1 w0 w1.
inline void blend_pixels(const std::int16_t* row, const int* first, const std::int16_t* weights, int taps,
                         int outputs, std::uint8_t* out) {
  const __m128i pair = _mm_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1);
  const __m128i half = _mm_set1_epi32(1 << (kWeightBits + kRowBits - 1));
  for (int i = 0; i < outputs; ++i, out += 3) {
    const std::int16_t* in = row + first[i] * 3;
    __m128i sum = half;
    for (int k = 0; k < taps; k += 2, in += 6, weights += 2) {
      std::int32_t both;
      std::memcpy(&both, weights, sizeof(both));
      const __m128i values = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)), pair);
      sum = _mm_add_epi32(sum, _mm_madd_epi16(values, _mm_set1_epi32(both)));
    }
    sum = _mm_srai_epi32(sum, kWeightBits + kRowBits);
    const __m128i bytes = _mm_packus_epi16(_mm_packs_epi32(sum, sum), sum);
    const std::uint32_t rgb = static_cast<std::uint32_t>(_mm_cvtsi128_si32(bytes));
    out[0] = static_cast<std::uint8_t>(rgb);
    out[1] = static_cast<std::uint8_t>(rgb >> 8);
    out[2] = static_cast<std::uint8_t>(rgb >> 16);
  }
}

inline __m128i load_low(const std::int16_t* at) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
}
inline __m128i load(const std::int16_t* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }

inline __m128i load_two(const std::int16_t* low, const std::int16_t* high) {
  return _mm_castpd_si128(
      _mm_loadh_pd(_mm_castsi128_pd(load_low(low)), reinterpret_cast<const double*>(high)));
}

// Four taps an output.
inline void blend_four_taps(const std::int16_t* row, const int* first, const std::int16_t* weights,
                            int outputs, std::int16_t* out) {
  int i = 0;
#if defined(__AVX2__)
  const __m256i half = _mm256_set1_epi32(1 << (kWeightBits - 1));
  for (; i + 8 <= outputs; i += 8) {
    const int* at = first + i;
    const __m256i* w = reinterpret_cast<const __m256i*>(weights + 4 * i);
    // Outputs 0, 1 | 2, 3 and 4, 5 | 6, 7, as their weights lie.
    const __m256i a =
        _mm256_set_m128i(load_two(row + at[2], row + at[3]), load_two(row + at[0], row + at[1]));
    const __m256i b =
        _mm256_set_m128i(load_two(row + at[6], row + at[7]), load_two(row + at[4], row + at[5]));
    const __m256i sums = _mm256_hadd_epi32(_mm256_madd_epi16(a, _mm256_loadu_si256(w)),
                                           _mm256_madd_epi16(b, _mm256_loadu_si256(w + 1)));
    // 0 1 4 5 | 2 3 6 7
    const __m256i scaled = _mm256_srai_epi32(_mm256_add_epi32(sums, half), kWeightBits);
    const __m256i ordered = _mm256_permute4x64_epi64(scaled, 0b11'01'10'00);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm_packs_epi32(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
  }
#endif
  const __m128i half_low = _mm_set1_epi32(1 << (kWeightBits - 1));
  for (; i < outputs; i += 4) {
    const __m128i a = load_two(row + first[i], row + first[i + 1]);
    const __m128i b = load_two(row + first[i + 2], row + first[i + 3]);
    const __m128i sums = _mm_hadd_epi32(_mm_madd_epi16(a, load(weights + 4 * i)),
                                        _mm_madd_epi16(b, load(weights + 4 * i + 8)));
    const __m128i scaled = _mm_srai_epi32(_mm_add_epi32(sums, half_low), kWeightBits);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out + i), _mm_packs_epi32(scaled, scaled));
  }
}

// Several outputs at a time, of one value each. Taps come in fours, or in eights when there are more.
inline void blend_values(const std::int16_t* row, const int* first, const std::int16_t* weights, int taps,
                         int outputs, std::int16_t* out) {
  if (taps == 4) return blend_four_taps(row, first, weights, outputs, out);
  const __m128i half = _mm_set1_epi32(1 << (kWeightBits - 1));
  for (int i = 0; i < outputs; i += 4, weights += 4 * taps) {
    __m128i sum[4] = {};
    for (int j = 0; j < 4; ++j)
      for (int k = 0; k < taps; k += 8)
        sum[j] =
            _mm_add_epi32(sum[j], _mm_madd_epi16(load(row + first[i + j] + k), load(weights + j * taps + k)));
    __m128i sums = _mm_hadd_epi32(_mm_hadd_epi32(sum[0], sum[1]), _mm_hadd_epi32(sum[2], sum[3]));
    sums = _mm_srai_epi32(_mm_add_epi32(sums, half), kWeightBits);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out + i), _mm_packs_epi32(sums, sums));
  }
}

// Bytes of eight pixels' colours, each in the low half, side by side.
inline void interleave(__m128i r, __m128i g, __m128i b, std::uint8_t* out) {
  const __m128i rg = _mm_unpacklo_epi8(r, g);
  const __m128i rg_first = _mm_setr_epi8(0, 1, -1, 2, 3, -1, 4, 5, -1, 6, 7, -1, 8, 9, -1, 10);
  const __m128i b_first = _mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1);
  const __m128i rg_rest = _mm_setr_epi8(11, -1, 12, 13, -1, 14, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m128i b_rest = _mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, -1, -1, -1, -1, -1, -1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                   _mm_or_si128(_mm_shuffle_epi8(rg, rg_first), _mm_shuffle_epi8(b, b_first)));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out + 16),
                   _mm_or_si128(_mm_shuffle_epi8(rg, rg_rest), _mm_shuffle_epi8(b, b_rest)));
}

// JFIF's colours: r = y + 1.402 cr, g = y - 0.344136 cb - 0.714136 cr, b = y + 1.772 cb. Multiplying rounds
// to a row's units.
inline void merge_colours(const std::int16_t* y, const std::int16_t* cb, const std::int16_t* cr, int count,
                          std::uint8_t* out) {
  const __m128i middle = _mm_set1_epi16(128 << kRowBits), half = _mm_set1_epi16(1 << (kRowBits - 1));
  const auto times = [](__m128i value, double factor) {
    return _mm_mulhrs_epi16(value, _mm_set1_epi16(static_cast<std::int16_t>(factor * 32768 + 0.5)));
  };
  const auto to_bytes = [](__m128i value) {
    value = _mm_srai_epi16(value, kRowBits);
    return _mm_packus_epi16(value, value);
  };
  for (int i = 0; i < count; i += 8) {
    const __m128i bright = _mm_adds_epi16(load(y + i), half);
    __m128i r = bright, g = bright, b = bright;
    if (cb) {
      const __m128i blue = _mm_sub_epi16(load(cb + i), middle), red = _mm_sub_epi16(load(cr + i), middle);
      r = _mm_adds_epi16(bright, _mm_adds_epi16(red, times(red, 0.402)));
      g = _mm_subs_epi16(bright, _mm_adds_epi16(times(blue, 0.344136), times(red, 0.714136)));
      b = _mm_adds_epi16(bright, _mm_subs_epi16(_mm_adds_epi16(blue, blue), times(blue, 0.228)));
    }
    if (i + 8 <= count) {
      interleave(to_bytes(r), to_bytes(g), to_bytes(b), out + 3 * i);
    } else {
      std::uint8_t rest[24];
      interleave(to_bytes(r), to_bytes(g), to_bytes(b), rest);
      std::memcpy(out + 3 * i, rest, static_cast<std::size_t>(count - i) * 3);
    }
  }
}

}  // namespace redline::data::REDLINE_ISA
