#include "data/images/warp.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace redline::data {
namespace {

constexpr int kFraction = 32;  // bits of a coordinate below the point
constexpr int kWeight = 13;    // bits of the weights of four pixels together
constexpr int kLane = 21;      // bits of a channel of an expanded pixel: of a byte times a weight

static_assert(8 + kWeight <= kLane && 3 * kLane <= 64);

std::int64_t fixed(double value) {
  return static_cast<std::int64_t>(std::nearbyint(value * static_cast<double>(std::int64_t{1} << kFraction)));
}

std::uint64_t lanes(const std::uint8_t* pixel) {
  return std::uint64_t{pixel[0]} | std::uint64_t{pixel[1]} << kLane | std::uint64_t{pixel[2]} << (2 * kLane);
}

// [height + 2, width + 2] pixels whose channels are far enough apart that one product weights all three, with
// the outermost pixels repeated around them.
void expand(const RgbImage& image, std::vector<std::uint64_t>& to) {
  const std::size_t stride = static_cast<std::size_t>(image.width) + 2;
  const std::size_t needed = stride * (static_cast<std::size_t>(image.height) + 2);
  if (to.size() < needed) to.resize(needed);
  const std::uint8_t* from = image.data;
  for (int y = 1; y <= image.height; ++y) {
    std::uint64_t* row = to.data() + static_cast<std::size_t>(y) * stride;
    for (int x = 1; x <= image.width; ++x, from += 3) row[x] = lanes(from);
    row[0] = row[1];
    row[stride - 1] = row[stride - 2];
  }
  std::copy_n(to.data() + stride, stride, to.data());
  std::copy_n(to.data() + needed - 2 * stride, stride, to.data() + needed - stride);
}

}  // namespace

Affine shear_x(double slope) { return {1, slope, 0, 0, 1, 0}; }
Affine shear_y(double slope) { return {1, 0, 0, slope, 1, 0}; }
Affine translation(int right, int down) { return {1, 0, -double(right), 0, 1, -double(down)}; }

Affine rotation(double degrees, int width, int height) {
  // Without the noise of the last digits, a right angle is one exactly.
  const auto clean = [](double value) { return std::nearbyint(value * 1e15) / 1e15; };
  const double angle = degrees * std::numbers::pi / 180.0, c = clean(std::cos(angle)),
               s = clean(std::sin(angle));
  const double x = width / 2.0, y = height / 2.0;
  return {c, -s, x - c * x + s * y, s, c, y - s * x - c * y};
}

void warp(const RgbImage& image, const Affine& map, std::vector<std::uint64_t>& scratch) {
  const int width = image.width, height = image.height;
  const std::ptrdiff_t stride = width + 2;
  expand(image, scratch);
  const std::int64_t step_x = fixed(map.xx), step_y = fixed(map.yx);
  const std::int64_t right = std::int64_t{width} << kFraction, bottom = std::int64_t{height} << kFraction;
  constexpr std::int64_t kHalf = std::int64_t{1} << (kFraction - 1);
  std::uint8_t* to = image.data;
  for (int y = 0; y < height; ++y) {
    std::int64_t in_x = fixed(map.xx * 0.5 + map.xy * (y + 0.5) + map.x0);
    std::int64_t in_y = fixed(map.yx * 0.5 + map.yy * (y + 0.5) + map.y0);
    for (int x = 0; x < width; ++x, to += 3, in_x += step_x, in_y += step_y) {
      if (in_x < 0 || in_x >= right || in_y < 0 || in_y >= bottom) {
        to[0] = to[1] = to[2] = 0;
        continue;
      }
      // From corners to centres of pixels, and one on for the border: two halves.
      const std::int64_t at_x = in_x + kHalf, at_y = in_y + kHalf;
      const std::uint64_t* upper = scratch.data() + (at_y >> kFraction) * stride + (at_x >> kFraction);
      const std::uint64_t* lower = upper + stride;
      const auto across = static_cast<std::uint32_t>(at_x) >> (32 - kWeight);
      const auto down = static_cast<std::uint32_t>(at_y) >> (32 - kWeight);
      const std::uint32_t both = (across * down + (1U << (kWeight - 1))) >> kWeight;
      const std::uint64_t sum = upper[0] * ((1U << kWeight) - across - down + both) +
                                upper[1] * (across - both) + lower[0] * (down - both) + lower[1] * both;
      to[0] = static_cast<std::uint8_t>(sum >> kWeight);
      to[1] = static_cast<std::uint8_t>(sum >> (kLane + kWeight));
      to[2] = static_cast<std::uint8_t>(sum >> (2 * kLane + kWeight));
    }
  }
}

}  // namespace redline::data
