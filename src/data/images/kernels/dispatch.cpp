#include "data/images/kernels/kernels.h"

namespace redline::data {

constinit const std::array<std::uint8_t, 64 + kJpegEndRun + 16> kJpegPlaces = [] {
  std::array<std::uint8_t, 64 + kJpegEndRun + 16> places{};
  places.fill(64);
  int x = 0, y = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    places[i] = static_cast<std::uint8_t>(y * 8 + x);
    const bool up = (x + y) % 2 == 0;
    if (up) {
      if (x == 7)
        ++y;
      else if (y == 0)
        ++x;
      else
        ++x, --y;
    } else {
      if (y == 7)
        ++x;
      else if (x == 0)
        ++y;
      else
        --x, ++y;
    }
  }
  return places;
}();

const Kernels& kernels() {
  static const Kernels& chosen =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")
          ? v3::kKernels
          : v2::kKernels;
  return chosen;
}

}  // namespace redline::data
