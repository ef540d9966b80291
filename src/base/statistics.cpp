#include "base/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace redline {
namespace {

constexpr double kWhisker = 1.5;  // interquartile ranges

// P(X <= k) for k = 0 .. n of a binomial law.
std::vector<double> binomial_below(std::size_t n, double p) {
  std::vector<double> below(n + 1);
  const auto count = static_cast<double>(n);
  double sum = 0,
         log_chance = count * std::log1p(-p);  // logarithms: the chance of none of a million is 10^-301030
  for (std::size_t k = 0; k <= n; ++k) {
    sum += std::exp(log_chance);
    below[k] = std::min(sum, 1.0);
    const auto hits = static_cast<double>(k);
    log_chance += std::log((count - hits) / (hits + 1) * p / (1 - p));
  }
  return below;
}

}  // namespace

double mean(std::span<const double> values) {
  check(!values.empty(), "the mean of nothing");
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double standard_deviation(std::span<const double> values) {
  const double centre = mean(values);
  if (values.size() < 2) return 0;
  double sum = 0;
  for (double value : values) sum += (value - centre) * (value - centre);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double quantile_of_sorted(std::span<const double> sorted, double q) {
  check(!sorted.empty(), "a quantile of nothing");
  check(q >= 0 && q <= 1, "{} is not a quantile", q);
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  return quantile_of_sorted(values, q);
}

double median(std::vector<double> values) {
  check(!values.empty(), "the median of nothing");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2.0;
}

ConfidenceInterval quantile_interval(std::span<const double> sorted, double q, double confidence) {
  check(!sorted.empty(), "the interval of nothing");
  check(q > 0 && q < 1, "{} has no interval", q);
  // The q-quantile lies between the values of 1-based ranks low and high with the chance that low to high - 1
  // of the sample's values are below it, which is binomial.
  const std::vector<double> below = binomial_below(sorted.size(), q);
  const double alpha = 1 - confidence;
  const std::size_t n = sorted.size();
  std::size_t low = 0;  // as high as possible with P(X < low) <= alpha / 2; 0 when no value is
  while (low < n && below[low] <= alpha / 2) ++low;
  std::size_t high = n;  // P(X <= high - 1) >= 1 - alpha / 2
  while (high > 1 && below[high - 2] >= 1 - alpha / 2) --high;
  const double beneath = low == 0 ? below[0] : below[low - 1];
  low = std::max<std::size_t>(low, 1);
  return {sorted[low - 1], sorted[high - 1], std::max(0.0, below[high - 1] - beneath)};
}

Summary summarize(std::vector<double> values) {
  Summary summary;
  summary.count = values.size();
  summary.mean = mean(values);
  summary.deviation = standard_deviation(values);
  std::ranges::sort(values);
  summary.min = values.front();
  summary.q1 = quantile_of_sorted(values, 0.25);
  summary.median = quantile_of_sorted(values, 0.5);
  summary.q3 = quantile_of_sorted(values, 0.75);
  summary.p90 = quantile_of_sorted(values, 0.9);
  summary.p99 = quantile_of_sorted(values, 0.99);
  summary.max = values.back();
  summary.median_interval = quantile_interval(values, 0.5);
  return summary;
}

double Whiskers::variability() const { return median == 0 ? kNaN : (high - low) / median; }

Whiskers whiskers(std::vector<double> values) {
  std::ranges::sort(values);
  Whiskers result;
  result.q1 = quantile_of_sorted(values, 0.25);
  result.median = quantile_of_sorted(values, 0.5);
  result.q3 = quantile_of_sorted(values, 0.75);
  const double reach = kWhisker * (result.q3 - result.q1);
  result.low = result.q1 - reach;
  result.high = result.q3 + reach;
  return result;
}

std::vector<std::size_t> outliers(std::span<const double> values, const Whiskers& whiskers) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!whiskers.holds(values[i])) found.push_back(i);
  return found;
}

double pearson(std::span<const double> x, std::span<const double> y) {
  check(x.size() == y.size(), "{} and {} values are not pairs", x.size(), y.size());
  if (x.size() < 3) return kNaN;  // two points always lie on a line
  const double x_mean = mean(x), y_mean = mean(y);
  double xx = 0, yy = 0, xy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - x_mean) * (x[i] - x_mean);
    yy += (y[i] - y_mean) * (y[i] - y_mean);
    xy += (x[i] - x_mean) * (y[i] - y_mean);
  }
  if (xx == 0 || yy == 0) return kNaN;
  return std::clamp(xy / std::sqrt(xx) / std::sqrt(yy), -1.0, 1.0);
}

double spearman(std::span<const double> x, std::span<const double> y) { return pearson(ranks(x), ranks(y)); }

ConfidenceInterval correlation_interval(double r, std::size_t pairs, double confidence) {
  if (pairs < 4 || std::isnan(r)) return {-1, 1, 0};
  const double reach = normal_quantile(0.5 + confidence / 2) / std::sqrt(static_cast<double>(pairs) - 3);
  return {std::tanh(std::atanh(r) - reach), std::tanh(std::atanh(r) + reach), confidence};
}

std::vector<double> ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  std::vector<double> result(values.size());
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double shared = static_cast<double>(begin + 1 + end) / 2;  // the mean of ranks begin + 1 .. end
    for (std::size_t i = begin; i < end; ++i) result[order[i]] = shared;
  }
  return result;
}

}  // namespace redline
