#include "base/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace redline {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kWhisker = 1.5;           // interquartile ranges
constexpr std::size_t kExactPairs = 50;    // beyond, the normal law is right to three digits
constexpr std::size_t kWalshPairs = 1000;  // half a million averages
constexpr std::size_t kStretches = 40;     // enough for a 95% interval, few enough to be long
constexpr std::size_t kLeastForBootstrap = 8;
constexpr int kResamples = 2000;

double normal_below(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

// The z that the part p of the normal law lies below, by bisection: 1e-12 is far below what a sample can
// tell.
double normal_quantile(double p) {
  double low = -40, high = 40;
  while (high - low > 1e-12) {
    const double middle = (low + high) / 2;
    (normal_below(middle) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

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

std::vector<double> log_ratios(std::span<const double> before, std::span<const double> after) {
  check(before.size() == after.size() && !before.empty(), "{} and {} values are no pairs", before.size(),
        after.size());
  std::vector<double> ratios(before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    check(before[i] > 0 && after[i] > 0, "a measurement of {} or {} is not positive", before[i], after[i]);
    ratios[i] = std::log(after[i] / before[i]);
  }
  return ratios;
}

// The law of the sum of the ranks with a positive sign, when signs are by chance: P(2 W <= s) for s = 0 .. 2
// sum. Ranks are doubled, since ties share halves.
std::vector<double> signed_rank_below(const std::vector<double>& of_ranks) {
  std::size_t total = 0;
  std::vector<double> chance{1.0};
  for (double rank : of_ranks) {
    const auto doubled = static_cast<std::size_t>(std::lround(2 * rank));
    total += doubled;
    chance.resize(total + 1, 0.0);
    for (std::size_t s = total + 1; s-- > 0;)
      chance[s] = (chance[s] + (s >= doubled ? chance[s - doubled] : 0.0)) / 2;
  }
  std::partial_sum(chance.begin(), chance.end(), chance.begin());
  return chance;
}

double signed_rank_p_value(const std::vector<double>& differences) {
  std::vector<double> sizes, signs;
  for (double difference : differences) {
    if (difference == 0) continue;  // says nothing about a direction
    sizes.push_back(std::abs(difference));
    signs.push_back(difference > 0 ? 1.0 : 0.0);
  }
  if (sizes.empty()) return 1;
  const std::vector<double> rank = ranks(sizes);
  const double positive = std::inner_product(rank.begin(), rank.end(), signs.begin(), 0.0);
  const double total = std::accumulate(rank.begin(), rank.end(), 0.0);
  const double smaller = std::min(positive, total - positive);
  if (sizes.size() <= kExactPairs) {
    const std::vector<double> below = signed_rank_below(rank);
    return std::min(1.0, 2 * below[static_cast<std::size_t>(std::lround(2 * smaller))]);
  }
  const double variance = std::inner_product(rank.begin(), rank.end(), rank.begin(), 0.0) / 4;
  return std::min(1.0, 2 * normal_below((smaller - total / 2) / std::sqrt(variance)));
}

// Means of all pairs of values, each with itself too; rising.
std::vector<double> walsh_averages(const std::vector<double>& values) {
  std::vector<double> averages;
  averages.reserve(values.size() * (values.size() + 1) / 2);
  for (std::size_t i = 0; i < values.size(); ++i)
    for (std::size_t j = i; j < values.size(); ++j) averages.push_back((values[i] + values[j]) / 2);
  std::ranges::sort(averages);
  return averages;
}

// Which Walsh averages, counted from both ends, are the interval: as many as Wilcoxon's test leaves out.
struct Tail {
  std::size_t left_out = 0;
  double coverage = 0;
};

Tail walsh_tail(std::size_t pairs, double confidence) {
  const double alpha = 1 - confidence;
  const auto n = static_cast<double>(pairs);
  if (pairs > kExactPairs) {
    const double spread = std::sqrt(n * (n + 1) * (2 * n + 1) / 24);
    const double rank = n * (n + 1) / 4 - normal_quantile(1 - alpha / 2) * spread;
    return {static_cast<std::size_t>(std::max(0.0, std::floor(rank))), confidence};
  }
  std::vector<double> plain(pairs);
  std::iota(plain.begin(), plain.end(), 1.0);
  const std::vector<double> below = signed_rank_below(plain);
  std::size_t left_out = 0;  // the largest with P(W < left_out) within alpha / 2
  while (below[2 * left_out] <= alpha / 2) ++left_out;
  return {left_out, 1 - 2 * (left_out == 0 ? 0.0 : below[2 * (left_out - 1)])};
}

std::vector<double> stretch_medians(std::span<const double> values) {
  const std::size_t count = std::min(values.size(), kStretches);
  std::vector<double> medians(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = i * values.size() / count, end = (i + 1) * values.size() / count;
    medians[i] = median({values.begin() + static_cast<std::ptrdiff_t>(begin),
                         values.begin() + static_cast<std::ptrdiff_t>(end)});
  }
  return medians;
}

double resampled_median(const std::vector<double>& values, Random& random, std::vector<double>& scratch) {
  scratch.resize(values.size());
  for (double& value : scratch) value = values[static_cast<std::size_t>(random.below(values.size()))];
  return median(scratch);
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
  check(q >= 0 && q <= 1, "{} is no quantile", q);
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

bool Change::beyond_noise() const {
  // Discrete intervals seldom have exactly what was asked for, and never less when they can have it.
  return interval.coverage >= kConfidence - 1e-9 && (interval.low > 0 || interval.high < 0);
}

Change compare_paired(std::span<const double> before, std::span<const double> after, double confidence) {
  std::vector<double> ratios = log_ratios(before, after);
  Change result;
  result.count = ratios.size();
  result.p_value = signed_rank_p_value(ratios);
  if (ratios.size() > kWalshPairs) {
    std::ranges::sort(ratios);
    result.change = std::expm1(quantile_of_sorted(ratios, 0.5));
    result.interval = quantile_interval(ratios, 0.5, confidence);
  } else {
    const std::vector<double> averages = walsh_averages(ratios);
    const Tail tail = walsh_tail(ratios.size(), confidence);
    const std::size_t from = tail.left_out == 0 ? 0 : tail.left_out - 1;
    result.change = std::expm1(quantile_of_sorted(averages, 0.5));
    // With no average left out, the whole range is the interval, which misses the change when all signs
    // agree.
    const double widest = 1 - std::ldexp(2.0, -static_cast<int>(ratios.size()));
    result.interval = {averages[from], averages[averages.size() - 1 - from],
                       tail.left_out == 0 ? std::max(0.0, widest) : tail.coverage};
  }
  result.interval.low = std::expm1(result.interval.low);
  result.interval.high = std::expm1(result.interval.high);
  return result;
}

Change compare_medians(std::span<const double> before, std::span<const double> after, double confidence) {
  Change result;
  result.count = std::min(before.size(), after.size());
  const double base = median({before.begin(), before.end()});
  check(base > 0, "a median of {} has no ratio", base);
  result.change = median({after.begin(), after.end()}) / base - 1;
  if (result.count < kLeastForBootstrap) {
    result.interval = {result.change, result.change, 0};
    return result;
  }
  const std::vector<double> old_medians = stretch_medians(before), new_medians = stretch_medians(after);
  Random random(0, before.size());
  std::vector<double> scratch, changes(kResamples);
  for (double& change : changes) {
    const double drawn = resampled_median(new_medians, random, scratch);
    change = drawn / resampled_median(old_medians, random, scratch) - 1;
  }
  std::ranges::sort(changes);
  const double tail = (1 - confidence) / 2;
  result.interval = {quantile_of_sorted(changes, tail), quantile_of_sorted(changes, 1 - tail), confidence};
  return result;
}

double pearson(std::span<const double> x, std::span<const double> y) {
  check(x.size() == y.size(), "{} and {} values are no pairs", x.size(), y.size());
  if (x.size() < 2) return kNaN;
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
