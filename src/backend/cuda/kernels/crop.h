// Crop, antialiased resize and mirror of decoded images, all rows of a batch in one launch, and a check that
// a decoder wrote what it was asked to.
//
// The computation of one output pixel is plain C++, so that tests can compare it with the CPU's resizer
// without a GPU: the weighted mean of the input pixels that the filter covers, as data/images/resize.h
// defines it, but in fp32 and rounded once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/interpolation.h"

#ifdef __CUDACC__
#define REDLINE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define REDLINE_HOST_DEVICE inline
#endif

struct CUstream_st;

namespace redline::backend::cuda {

struct CropJob {
  std::uint8_t* pixels;  // the decoded image, [height, width, 3] packed
  int width, height;
  float x, y, box_width, box_height;  // what is shown; at least partly inside the clip
  int left, top, right, bottom;       // the clip: not empty, inside the image
  int flip;
  std::uint8_t* out;  // [size, size, 3]
};

template <Interpolation kFilter>
REDLINE_HOST_DEVICE float crop_weight(float x) {
  x = x < 0 ? -x : x;
  if constexpr (kFilter == Interpolation::bilinear) {
    return x < 1.0F ? 1.0F - x : 0.0F;
  } else {
    if (x < 1.0F) return (1.5F * x - 2.5F) * x * x + 1.0F;
    return x < 2.0F ? ((x - 5.0F) * x + 8.0F) * x * -0.5F + 2.0F : 0.0F;
  }
}

// The input pixels that one output pixel covers in one direction: [begin, end), never empty.
struct CropSpan {
  float centre, inverse;  // the filter is evaluated at (pixel + 0.5 - centre) * inverse
  int begin, end;
};

template <Interpolation kFilter>
REDLINE_HOST_DEVICE CropSpan crop_span(float start, float length, int clip_begin, int clip_end, int outputs,
                                       int output) {
  const float scale = length / static_cast<float>(outputs);
  const float stretch = scale > 1.0F ? scale : 1.0F;
  const float support = (kFilter == Interpolation::bilinear ? 1.0F : 2.0F) * stretch;
  CropSpan span;
  span.centre = start + (static_cast<float>(output) + 0.5F) * scale;
  span.inverse = 1.0F / stretch;
  // Half a pixel added: a pixel counts from its middle. Neither sum is below zero by more than the support.
  const float low = span.centre - support + 0.5F, high = span.centre + support + 0.5F;
  span.begin = low > static_cast<float>(clip_begin) ? static_cast<int>(low) : clip_begin;
  span.begin = span.begin < clip_end ? span.begin : clip_end - 1;
  span.end = high < static_cast<float>(clip_end) ? static_cast<int>(high) : clip_end;
  span.end = span.end > span.begin ? span.end : span.begin + 1;
  return span;
}

REDLINE_HOST_DEVICE std::uint8_t crop_byte(float value) {
  value = value + 0.5F;
  return static_cast<std::uint8_t>(value < 0.0F ? 0.0F : value > 255.0F ? 255.0F : value);
}

// Pixel (column, row) of an output of size × size.
template <Interpolation kFilter>
REDLINE_HOST_DEVICE void crop_pixel(const CropJob& job, int size, int column, int row) {
  const CropSpan across = crop_span<kFilter>(job.x, job.box_width, job.left, job.right, size,
                                             job.flip ? size - 1 - column : column);
  const CropSpan down = crop_span<kFilter>(job.y, job.box_height, job.top, job.bottom, size, row);
  const auto pixel = [](std::uint8_t* image, int width, int x, int y) {
    return image + (static_cast<std::size_t>(y) * static_cast<std::size_t>(width) + x) * 3;
  };
  float red = 0, green = 0, blue = 0, total = 0;
  for (int y = down.begin; y < down.end; ++y) {
    const std::uint8_t* in = pixel(job.pixels, job.width, across.begin, y);
    float r = 0, g = 0, b = 0, sum = 0;
    for (int x = across.begin; x < across.end; ++x, in += 3) {
      const float weight =
          crop_weight<kFilter>((static_cast<float>(x) + 0.5F - across.centre) * across.inverse);
      r += weight * static_cast<float>(in[0]);
      g += weight * static_cast<float>(in[1]);
      b += weight * static_cast<float>(in[2]);
      sum += weight;
    }
    const float weight = crop_weight<kFilter>((static_cast<float>(y) + 0.5F - down.centre) * down.inverse);
    red += weight * r;
    green += weight * g;
    blue += weight * b;
    total += weight * sum;
  }
  std::uint8_t* out = pixel(job.out, size, column, row);
  if (total <= 0.0F) {  // the box is just outside the clip: take its nearest pixel
    const std::uint8_t* in = pixel(job.pixels, job.width, across.begin, down.begin);
    for (int c = 0; c < 3; ++c) out[c] = in[c];
    return;
  }
  const float scale = 1.0F / total;
  out[0] = crop_byte(red * scale);
  out[1] = crop_byte(green * scale);
  out[2] = crop_byte(blue * scale);
}

// Hardware decoders have skipped images, or stopped in the middle of one, without reporting it. So a few
// pixels of each image, from the first to the last, get a marker colour before decoding; if one still has it
// afterwards, the image counts as not decoded.
inline constexpr int kMarks = 8;

// `jobs` in device memory.
void mark_images(const CropJob* jobs, int count, CUstream_st* stream);
// unwritten[i] = 1 where a mark of image i is still there, else 0.
void find_marks(const CropJob* jobs, int count, std::uint8_t* unwritten, CUstream_st* stream);
void crop_images(const CropJob* jobs, int count, int size, Interpolation filter, CUstream_st* stream);

}  // namespace redline::backend::cuda
