// Reduces series to fewer points that look the same.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace redline::report {

struct Series {
  std::vector<double> x, y;  // y may be NaN: a gap
};

// About `points` points of a series at most: the lowest and highest of each equal stretch, in order, so that
// no spike is lost. A stretch with values that are not finite keeps a gap too. The first and last point stay.
// 0 keeps all.
Series thin(std::span<const double> x, std::span<const double> y, std::size_t points);

// The mean of each of at most `points` equal stretches, at its middle; values that are not finite are left
// out.
Series average(std::span<const double> x, std::span<const double> y, std::size_t points);

// A histogram: counts in equal bins from low to high.
struct Bins {
  double low = 0, high = 0;
  std::vector<std::size_t> counts;
  std::size_t below = 0, above = 0;  // outside
};
Bins count_in_bins(std::span<const double> values, double low, double high, std::size_t bins);

}  // namespace redline::report
