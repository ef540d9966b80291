// Fewer points that look the same.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace redline::report {

struct Series {
  std::vector<double> x, y;  // y may be NaN: a gap
};

// At most about `points` of a series, equally many a stretch: the lowest and the highest of each stretch in
// the order they come, so no spike is lost; a stretch with values that are not finite has a gap too. The
// first and last point stay. 0 points: all of them.
Series thin(std::span<const double> x, std::span<const double> y, std::size_t points);

// The mean of each of at most `points` equal stretches, at its middle; values that are not finite are left
// out.
Series average(std::span<const double> x, std::span<const double> y, std::size_t points);

// How values are spread: counts in `bins` equal bins from low to high.
struct Bins {
  double low = 0, high = 0;
  std::vector<std::size_t> counts;
  std::size_t below = 0, above = 0;  // outside
};
Bins count_in_bins(std::span<const double> values, double low, double high, std::size_t bins);

}  // namespace redline::report
