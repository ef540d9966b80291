#include "report/thin.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace redline::report {
namespace {

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

void put(Series& series, double x, double y) {
  series.x.push_back(x);
  series.y.push_back(y);
}

// The extremes of [begin, end), in order.
void put_stretch(std::span<const double> x, std::span<const double> y, std::size_t begin, std::size_t end,
                 Series& series) {
  std::size_t low = end, high = end, gap = end;
  for (std::size_t i = begin; i < end; ++i) {
    if (!std::isfinite(y[i])) {
      gap = i;
    } else {
      if (low == end || y[i] < y[low]) low = i;
      if (high == end || y[i] > y[high]) high = i;
    }
  }
  std::size_t kept[] = {low, high, gap};
  std::ranges::sort(kept);
  std::size_t last = end;
  for (std::size_t i : kept) {
    if (i == end || i == last) continue;
    put(series, x[i], std::isfinite(y[i]) ? y[i] : kGap);
    last = i;
  }
}

}  // namespace

Series thin(std::span<const double> x, std::span<const double> y, std::size_t points) {
  check(x.size() == y.size(), "{} places for {} values", x.size(), y.size());
  Series series;
  const std::size_t stretches = std::max<std::size_t>(1, points / 2);
  if (points == 0 || x.size() <= points) {
    series.x.assign(x.begin(), x.end());
    for (double value : y) series.y.push_back(std::isfinite(value) ? value : kGap);
    return series;
  }
  const std::size_t inner = x.size() - 2;
  put(series, x.front(), std::isfinite(y.front()) ? y.front() : kGap);
  for (std::size_t i = 0; i < stretches; ++i)
    put_stretch(x, y, 1 + i * inner / stretches, 1 + (i + 1) * inner / stretches, series);
  put(series, x.back(), std::isfinite(y.back()) ? y.back() : kGap);
  return series;
}

Series average(std::span<const double> x, std::span<const double> y, std::size_t points) {
  check(x.size() == y.size(), "{} places for {} values", x.size(), y.size());
  Series series;
  const std::size_t stretches = std::min(points, x.size());
  for (std::size_t stretch = 0; stretch < stretches; ++stretch) {
    const std::size_t begin = stretch * x.size() / stretches, end = (stretch + 1) * x.size() / stretches;
    double sum = 0;
    std::size_t count = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isfinite(y[i])) continue;
      sum += y[i];
      ++count;
    }
    if (count > 0) put(series, (x[begin] + x[end - 1]) / 2, sum / static_cast<double>(count));
  }
  return series;
}

Bins count_in_bins(std::span<const double> values, double low, double high, std::size_t bins) {
  Bins result{low, high, std::vector<std::size_t>(bins), 0, 0};
  const double width = (high - low) / static_cast<double>(bins);
  for (double value : values) {
    if (value < low) {
      ++result.below;
    } else if (value > high) {
      ++result.above;
    } else {
      const auto bin = width > 0 ? static_cast<std::size_t>((value - low) / width) : 0;
      ++result.counts[std::min(bin, bins - 1)];
    }
  }
  return result;
}

}  // namespace redline::report
