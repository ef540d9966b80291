#include "metrics/histogram.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace redline::metrics {

Histogram histogram_of(std::string tag, std::int64_t step, std::span<const float> values) {
  constexpr int kBuckets = 64;
  Histogram histogram{std::move(tag), step, {}};
  float least = INFINITY, most = -INFINITY;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  if (least > most) return histogram;
  const int count = least == most ? 1 : kBuckets;
  const double left = least, width = (static_cast<double>(most) - left) / count;
  for (int i = 0; i < count; ++i) histogram.buckets.push_back({left + i * width, left + (i + 1) * width, 0});
  histogram.buckets.back().right = most;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    const int bucket = width > 0 ? static_cast<int>((value - left) / width) : 0;
    ++histogram.buckets[static_cast<std::size_t>(std::min(bucket, count - 1))].count;
  }
  return histogram;
}

}  // namespace redline::metrics
