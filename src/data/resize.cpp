#include "data/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/error.h"

namespace redline::data {
namespace {

constexpr int kFractionBits =
    6;  // of a pixel value between the passes: 255 · 64 and bicubic's overshoot fit 16 bits
constexpr int kRowPadding = 16;  // elements a vector load may read past the end of a row
// Of a weight. At an edge bicubic weights exceed one, so a bit is left above it.
constexpr int kWeightBits = 14;

double support_of(Filter filter) { return filter == Filter::bilinear ? 1.0 : 2.0; }

double weight_at(Filter filter, double x) {
  x = std::fabs(x);
  if (filter == Filter::bilinear) return x < 1.0 ? 1.0 - x : 0.0;
  constexpr double a = -0.5;
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
  return 0.0;
}

// From a sum of weight times byte to a row's units.
inline std::int16_t to_row(std::int32_t sum) {
  constexpr int shift = kWeightBits - kFractionBits;
  return static_cast<std::int16_t>((sum + (1 << (shift - 1))) >> shift);
}

// out[i] = sum over k of weights[k] * source[k * stride + i], i < count.
void blend_rows_portable(const std::uint8_t* source, std::ptrdiff_t stride, const std::int16_t* weights,
                         int taps, int count, std::int16_t* out) {
  constexpr int kBlock = 64;
  for (int begin = 0; begin < count; begin += kBlock) {
    const int size = std::min(kBlock, count - begin);
    std::int32_t sums[kBlock] = {};
    for (int k = 0; k < taps; ++k) {
      const std::uint8_t* row = source + k * stride + begin;
      for (int i = 0; i < size; ++i) sums[i] += row[i] * weights[k];
    }
    for (int i = 0; i < size; ++i) out[begin + i] = to_row(sums[i]);
  }
}

std::uint8_t to_byte(std::int32_t sum) {
  constexpr int shift = kWeightBits + kFractionBits;
  return static_cast<std::uint8_t>(std::clamp((sum + (1 << (shift - 1))) >> shift, 0, 255));
}

void blend_columns_portable(const std::int16_t* row, const int* first, const std::int16_t* weights, int taps,
                            int outputs, std::ptrdiff_t step, std::uint8_t* out) {
  for (int i = 0; i < outputs; ++i, out += step, weights += taps) {
    const std::int16_t* in = row + first[i] * 3;
    std::int32_t sums[3] = {0, 0, 0};
    for (int k = 0; k < taps; ++k)
      for (int c = 0; c < 3; ++c) sums[c] += in[k * 3 + c] * weights[k];
    for (int c = 0; c < 3; ++c) out[c] = to_byte(sums[c]);
  }
}

#if defined(__x86_64__)

// Two rows at a time: the bytes of both side by side against their two weights.
__attribute__((target("avx2"))) void blend_rows_avx2(const std::uint8_t* source, std::ptrdiff_t stride,
                                                     const std::int16_t* weights, int taps, int count,
                                                     std::int16_t* out) {
  constexpr int shift = kWeightBits - kFractionBits;
  const __m256i half = _mm256_set1_epi32(1 << (shift - 1));
  int i = 0;
  for (; i + 16 <= count; i += 16) {
    __m256i low = half, high = half;
    const std::uint8_t* in = source + i;
    for (int k = 0; k < taps; k += 2, in += 2 * stride) {
      const bool pair = k + 1 < taps;
      const auto first = static_cast<std::uint16_t>(weights[k]);
      const auto second = static_cast<std::uint16_t>(pair ? weights[k + 1] : 0);
      const __m256i weight = _mm256_set1_epi32(static_cast<int>(first | (std::uint32_t{second} << 16)));
      const std::uint8_t* next = pair ? in + stride : in;
      const __m256i a = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
      const __m256i b = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(next)));
      low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), weight));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), weight));
    }
    const __m256i row = _mm256_packs_epi32(_mm256_srai_epi32(low, shift), _mm256_srai_epi32(high, shift));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), row);
  }
  if (i < count) blend_rows_portable(source + i, stride, weights, taps, count - i, out + i);
}

// Two taps of one pixel at a time: r0 r1 g0 g1 b0 b1 against w0 w1 w0 w1 w0 w1.
__attribute__((target("avx2"))) void blend_columns_avx2(const std::int16_t* row, const int* first,
                                                        const std::int16_t* weights, int taps, int outputs,
                                                        std::ptrdiff_t step, std::uint8_t* out) {
  const __m128i pair = _mm_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1);
  const __m128i half = _mm_set1_epi32(1 << (kWeightBits + kFractionBits - 1));
  for (int i = 0; i < outputs; ++i, out += step) {
    const std::int16_t* in = row + first[i] * 3;
    __m128i sum = half;
    for (int k = 0; k < taps; k += 2, in += 6, weights += 2) {
      std::int32_t both;
      std::memcpy(&both, weights, sizeof(both));
      const __m128i values = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)), pair);
      sum = _mm_add_epi32(sum, _mm_madd_epi16(values, _mm_set1_epi32(both)));
    }
    sum = _mm_srai_epi32(sum, kWeightBits + kFractionBits);
    const __m128i bytes = _mm_packus_epi16(_mm_packs_epi32(sum, sum), sum);
    const std::uint32_t rgb = static_cast<std::uint32_t>(_mm_cvtsi128_si32(bytes));
    out[0] = static_cast<std::uint8_t>(rgb);
    out[1] = static_cast<std::uint8_t>(rgb >> 8);
    out[2] = static_cast<std::uint8_t>(rgb >> 16);
  }
}

#endif

struct Kernels {
  decltype(&blend_rows_portable) rows = blend_rows_portable;
  decltype(&blend_columns_portable) columns = blend_columns_portable;
};

Kernels pick_kernels() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return {blend_rows_avx2, blend_columns_avx2};
#endif
  return {};
}

}  // namespace

void Resizer::Axis::plan(double start, double length, int clip_begin, int clip_end, int outputs,
                         Filter filter) {
  const double scale = length / outputs;
  const double stretch = std::max(scale, 1.0);  // shrinking widens the filter, growing does not narrow it
  const double support = support_of(filter) * stretch;
  taps = static_cast<int>(std::ceil(support)) * 2 + 1;
  taps += taps & 1;
  first.resize(static_cast<std::size_t>(outputs));
  weights.assign(static_cast<std::size_t>(outputs) * static_cast<std::size_t>(taps), 0);
  real.resize(static_cast<std::size_t>(taps));
  for (int i = 0; i < outputs; ++i) {
    const double centre = start + (i + 0.5) * scale;
    const int begin = std::max(clip_begin, static_cast<int>(std::floor(centre - support + 0.5)));
    const int end = std::min(clip_end, static_cast<int>(std::floor(centre + support + 0.5)));
    // Rounding a box's edge can put it a hair outside the clip; the nearest pixel then stands for all.
    const int from = std::clamp(begin, clip_begin, clip_end - 1);
    const int count = std::clamp(end - from, 1, taps);
    double sum = 0;
    for (int k = 0; k < count; ++k) {
      real[static_cast<std::size_t>(k)] = weight_at(filter, (from + k + 0.5 - centre) / stretch);
      sum += real[static_cast<std::size_t>(k)];
    }
    first[static_cast<std::size_t>(i)] = from;
    std::int16_t* to = weights.data() + static_cast<std::ptrdiff_t>(i) * taps;
    if (sum <= 0) {
      to[0] = 1 << kWeightBits;
      continue;
    }
    // Rounded so that they still add up to one: the error of each goes to the next.
    double carry = 0;
    for (int k = 0; k < count; ++k) {
      const double exact = real[static_cast<std::size_t>(k)] / sum * (1 << kWeightBits) + carry;
      const double rounded = std::clamp(std::nearbyint(exact), -32768.0, 32767.0);
      carry = std::clamp(exact - rounded, -1.0, 1.0);
      to[k] = static_cast<std::int16_t>(rounded);
    }
  }
}

void Resizer::resize(const Pixels& source, const Box& box, const Rect& clip, int out_width, int out_height,
                     Filter filter, bool flip, std::uint8_t* out) {
  static const Kernels kernels = pick_kernels();
  check(clip.x >= 0 && clip.y >= 0 && clip.width > 0 && clip.height > 0 &&
            clip.x + clip.width <= source.width && clip.y + clip.height <= source.height,
        "a clip outside its image");
  check(out_width > 0 && out_height > 0 && box.width > 0 && box.height > 0, "resizing to or from nothing");
  across_.plan(box.x, box.width, clip.x, clip.x + clip.width, out_width, filter);
  down_.plan(box.y, box.height, clip.y, clip.y + clip.height, out_height, filter);

  // Only the columns that the horizontal pass will read; it counts from the first of them.
  const int left = across_.first.front();
  const int right = std::min(clip.x + clip.width, across_.first.back() + across_.taps);
  for (int& x : across_.first) x -= left;
  const int values = (right - left) * 3;
  // Taps past the clip have weight zero, but are read.
  row_.assign(static_cast<std::size_t>((right - left + across_.taps) * 3 + kRowPadding), 0);

  const std::ptrdiff_t out_row = std::ptrdiff_t{out_width} * 3;
  for (int y = 0; y < out_height; ++y) {
    const int top = down_.first[static_cast<std::size_t>(y)];
    const int rows = std::min(down_.taps, source.height - top);
    kernels.rows(source.data + top * source.stride + left * 3, source.stride,
                 down_.weights.data() + static_cast<std::ptrdiff_t>(y) * down_.taps, rows, values,
                 row_.data());
    std::uint8_t* to = out + y * out_row + (flip ? out_row - 3 : 0);
    kernels.columns(row_.data(), across_.first.data(), across_.weights.data(), across_.taps, out_width,
                    flip ? -3 : 3, to);
  }
}

}  // namespace redline::data
