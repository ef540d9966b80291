#include "data/images/pillow_resize.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/images/kernels/kernels.h"

namespace redline::data {
namespace {

// The order of operations is Pillow's: weights are equal to the last bit.
double weight_at(Interpolation filter, double x) {
  x = std::fabs(x);
  if (filter == Interpolation::bilinear) return x < 1.0 ? 1.0 - x : 0.0;
  constexpr double a = -0.5;
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

std::int32_t in_units(double weight) {
  return static_cast<std::int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kExactBits));
}

}  // namespace

void PillowResizer::Axis::plan(int inputs, int outputs, int begin, int count, int origin,
                               Interpolation filter) {
  const double scale = static_cast<double>(inputs) / outputs;
  const double stretch = std::max(scale, 1.0);
  const double support = (filter == Interpolation::bilinear ? 1.0 : 2.0) * stretch;
  taps = static_cast<int>(std::ceil(support)) * 2 + 1;
  first.resize(static_cast<std::size_t>(count));
  exact.resize(static_cast<std::size_t>(taps));
  weights.assign(static_cast<std::size_t>(count) * static_cast<std::size_t>(taps), 0);
  int most = 1;
  for (int i = 0; i < count; ++i) {
    const double centre = (begin + i + 0.5) * scale;
    const int from = std::max(0, static_cast<int>(centre - support + 0.5));
    const int used = std::min(inputs, static_cast<int>(centre + support + 0.5)) - from;
    double sum = 0;
    for (int k = 0; k < used; ++k) {
      const double weight = weight_at(filter, (k + from - centre + 0.5) * (1.0 / stretch));
      exact[static_cast<std::size_t>(k)] = weight;
      sum += weight;
    }
    for (int k = 0; k < used; ++k) {
      const double weight = exact[static_cast<std::size_t>(k)];
      weights[static_cast<std::size_t>(i * taps + k)] = in_units(sum != 0 ? weight / sum : weight);
    }
    first[static_cast<std::size_t>(i)] = from - origin;
    most = std::max(most, used);
  }
  // Pillow's bound is generous, and every tap costs time.
  for (int i = 0; i < count && most < taps; ++i)
    std::copy_n(weights.begin() + i * taps, most, weights.begin() + i * most);
  taps = most;
}

void PillowResizer::Axis::split(std::vector<std::int16_t>& halves) {
  const auto pairs = static_cast<std::size_t>((taps + 1) / 2);
  halves.assign((first.size() + 1) / 2 * pairs * 32, 0);
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (std::size_t k = 0; k < static_cast<std::size_t>(taps); ++k) {
      const std::int32_t weight = weights[i * static_cast<std::size_t>(taps) + k];
      std::int16_t* upper = &halves[(i / 2 * pairs + k / 2) * 32 + i % 2 * 8 + k % 2];
      for (int copy = 0; copy < 8; copy += 2) {
        upper[copy] = static_cast<std::int16_t>(weight >> (kExactBits / 2));
        upper[16 + copy] = static_cast<std::int16_t>(weight & ((1 << (kExactBits / 2)) - 1));
      }
    }
  }
  taps = static_cast<int>(2 * pairs);
}

void PillowResizer::resize(const Pixels& source, int width, int height, const ResizedPart& wanted,
                           Interpolation filter, std::uint8_t* out) {
  const Rect& part = wanted.part;
  check(source.shrink == 1 && part.width > 0 && part.height > 0, "resizing what was shrunk, or to nothing");
  across_.plan(width, wanted.width, part.x, part.width, source.origin_x, filter);
  across_.split(halves_);
  down_.plan(height, wanted.height, part.y, part.height, source.origin_y, filter);
  const int top = down_.first.front(), bottom = std::min(source.height, down_.first.back() + down_.taps);
  check(top >= 0 && across_.first.front() >= 0 && across_.first.back() < source.width && top < bottom,
        "resizing pixels that were not decoded");
  const std::ptrdiff_t row_bytes = std::ptrdiff_t{part.width} * 3;
  rows_.resize(static_cast<std::size_t>((bottom - top) * row_bytes));
  // Taps past the end of a row have weight zero, but are read; after the last row there may be nothing.
  const std::ptrdiff_t past = across_.taps * 3 + kRowPadding;
  padded_.assign(static_cast<std::size_t>(source.width * 3 + past), 0);
  for (int y = top; y < bottom; ++y) {
    const std::uint8_t* row = source.data + y * source.stride;
    if ((source.height - 1 - y) * source.stride < past) {
      std::copy_n(row, source.width * 3, padded_.begin());
      row = padded_.data();
    }
    kernels().exact_pixels(row, across_.first.data(), halves_.data(), across_.taps, part.width,
                           rows_.data() + (y - top) * row_bytes);
  }
  for (int y = 0; y < part.height; ++y) {
    const int from = down_.first[static_cast<std::size_t>(y)];
    kernels().exact_rows(rows_.data() + (from - top) * row_bytes, row_bytes,
                         down_.weights.data() + static_cast<std::ptrdiff_t>(y) * down_.taps,
                         std::min(down_.taps, bottom - from), static_cast<int>(row_bytes),
                         out + y * row_bytes);
  }
}

}  // namespace redline::data
