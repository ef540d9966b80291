// What base/statistics.h says of comparisons.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/statistics.h"

namespace redline {
namespace {

constexpr std::size_t kExactPairs = 50;    // beyond, the normal law is right to three digits
constexpr std::size_t kWalshPairs = 1000;  // half a million averages
constexpr std::size_t kLeastValues = 16;   // fewer cannot tell noise from drift
constexpr std::size_t kLeastBatches = 20;
constexpr std::size_t kStretches = 8;

double normal_below(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

// The regularised incomplete beta function by Lentz's continued fraction; x below (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto away = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1, d = 1 / away(1 - (a + b) * x / (a + 1)), result = d;
  for (int m = 1; m < 500; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away(1 + even * d);
    c = away(1 + even / c);
    result *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away(1 + odd * d);
    c = away(1 + odd / c);
    result *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  const double front =
      std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x);
  return std::exp(front) * result / a;
}

double student_below(double t, double freedom) {
  if (t == 0) return 0.5;
  if (freedom > 1e6) return normal_below(t);
  const double a = freedom / 2, x = freedom / (freedom + t * t);
  // Half of the chance of more than |t| on either side.
  const double tail = x < (a + 1) / (a + 2.5) ? beta_fraction(a, 0.5, x) / 2
                                              : (1 - beta_fraction(0.5, a, t * t / (freedom + t * t))) / 2;
  return t > 0 ? 1 - tail : tail;
}

std::vector<double> log_ratios(std::span<const double> before, std::span<const double> after) {
  check(before.size() == after.size() && !before.empty(), "{} and {} values are not pairs", before.size(),
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

// How many Walsh averages to drop at each end for the interval, by Wilcoxon's test, and its coverage.
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

constexpr double kKnown = 1e9;  // degrees of freedom of what is not estimated

// A part of an estimate's variance, and how well it is known.
struct Noise {
  double variance = 0;
  double freedom = 1;
};

// The variance of the mean of a stationary first-order autoregressive process, from one sample of it. A short
// sample underestimates the correlation (Kendall's bias), with an error; both are added, since too small a
// variance makes false claims. A memory longer than ten times the sample cannot be distinguished from a
// constant.
double autoregressive_variance(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  const double centre = mean(values);
  double squares = 0, products = 0, before = 0;
  for (double value : values) {
    const double now = value - centre;
    squares += now * now;
    products += now * before;
    before = now;
  }
  if (!(squares > 0)) return 0;
  const double seen = products / squares;
  const double unbiased = std::min(1.0, seen + (1 + 4 * seen) / n);
  const double error = std::sqrt(std::max(1 - unbiased * unbiased, 1 / n) / n);
  const double memory = std::clamp(unbiased + error, 0.0, 1 - 0.1 / n);
  const double shocks = squares / (n - 1) * (1 - seen * seen);
  // The sum over lags k of (1 - k/n) memory^k.
  const double lags =
      memory / (1 - memory) - memory * (1 - std::pow(memory, n)) / (n * (1 - memory) * (1 - memory));
  return shocks / (1 - memory * memory) / n * (1 + 2 * lags);
}

// The worst over time scales: slow drift hides under the noise of single values, and shows in means of many.
double variance_of_mean(std::span<const double> values) {
  double worst = autoregressive_variance(values);
  std::vector<double> batches(values.begin(), values.end());
  while (batches.size() / 2 >= kLeastBatches) {
    batches.resize(batches.size() / 2);
    for (std::size_t i = 0; i < batches.size(); ++i) batches[i] = (batches[2 * i] + batches[2 * i + 1]) / 2;
    worst = std::max(worst, autoregressive_variance(batches));
  }
  return worst;
}

// Stragglers hide how alike neighbours are: pulled in to the whiskers, they do not.
std::vector<double> without_stragglers(std::span<const double> values) {
  std::vector<double> result(values.begin(), values.end());
  const Whiskers ends = whiskers(result);
  for (double& value : result) value = std::clamp(value, ends.low, ends.high);
  return result;
}

enum class Centre { mean, median };

double centre_of(Centre centre, std::span<const double> values) {
  return centre == Centre::mean ? mean(values) : median({values.begin(), values.end()});
}

double variance_of_median(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const ConfidenceInterval independent = quantile_interval(sorted, 0.5);
  const double error = (independent.high - independent.low) / 2 / normal_quantile(0.975);
  const std::vector<double> tame = without_stragglers(values);
  const double deviation = standard_deviation(tame);
  if (!(deviation > 0)) return error * error;
  const double plain = deviation * deviation / static_cast<double>(values.size());
  return error * error * std::max(1.0, variance_of_mean(tame) / plain);
}

// Of the centre's logarithm.
Noise noise_of(Centre centre, std::span<const double> values) {
  const double variance = centre == Centre::median ? variance_of_median(values)
                                                   : std::max(variance_of_mean(values),
                                                              variance_of_mean(without_stragglers(values)));
  const double level = centre_of(centre, values);
  return {variance / (level * level), static_cast<double>(values.size() - 1)};
}

// What the stretches of one run differ by, as a part of its level: two runs differ by no less.
double spread_of_stretches(std::span<const double> values) {
  std::vector<double> means(kStretches);
  for (std::size_t i = 0; i < kStretches; ++i) {
    const std::size_t begin = i * values.size() / kStretches, end = (i + 1) * values.size() / kStretches;
    means[i] = mean(values.subspan(begin, end - begin));
  }
  return standard_deviation(means) / mean(means);
}

// An estimate with its noise, the sum of parts, by Student's law with Welch and Satterthwaite's freedom.
struct Estimate {
  double value = 0, error = 0, freedom = 1;

  Estimate(double estimate, std::initializer_list<Noise> parts) : value(estimate) {
    double sum = 0, squares = 0;
    for (const Noise& part : parts) {
      sum += part.variance;
      squares += part.variance * part.variance / part.freedom;
    }
    error = std::sqrt(sum);
    if (squares > 0) freedom = sum * sum / squares;
  }
  ConfidenceInterval interval(double confidence) const {
    const double reach = student_quantile(0.5 + confidence / 2, freedom) * error;
    return {value - reach, value + reach, confidence};
  }
  double p_value() const {
    if (!(error > 0)) return value == 0 ? 1 : 0;
    return 2 * student_below(-std::abs(value / error), freedom);
  }
};

ConfidenceInterval grown(const ConfidenceInterval& logarithms) {
  return {std::expm1(logarithms.low), std::expm1(logarithms.high), logarithms.coverage};
}

void check_positive(std::span<const double> values) {
  check(!values.empty(), "a comparison of nothing");
  for (double value : values) check(value > 0, "a measurement of {} is not positive", value);
}

ConfidenceInterval interval_of(Centre centre, std::span<const double> values, double confidence) {
  check_positive(values);
  const double level = centre_of(centre, values);
  if (values.size() < kLeastValues) return {level, level, 0};
  const ConfidenceInterval relative = Estimate(0, {noise_of(centre, values)}).interval(confidence);
  if (!informs(grown(relative))) return {level, level, 0};
  return {level * std::exp(relative.low), level * std::exp(relative.high), confidence};
}

Change compare_two_runs(Centre centre, std::span<const double> before, std::span<const double> after,
                        double run_spread, double confidence) {
  check_positive(before);
  check_positive(after);
  Change result;
  result.count = std::min(before.size(), after.size());
  const double change = std::log(centre_of(centre, after) / centre_of(centre, before));
  result.change = std::expm1(change);
  result.interval = {result.change, result.change, 0};
  if (result.count < kLeastValues) return result;
  result.evidence = Evidence::two_runs;
  const Noise old_noise = noise_of(centre, before), new_noise = noise_of(centre, after);
  result.within = grown(Estimate(change, {old_noise, new_noise}).interval(confidence));
  if (run_spread > 0)
    result.spread = std::max({run_spread, spread_of_stretches(before), spread_of_stretches(after)});
  const Noise between{2 * result.spread * result.spread, kKnown};
  const Estimate estimate(change, {old_noise, new_noise, between});
  result.interval = grown(estimate.interval(confidence));
  result.p_value = estimate.p_value();
  if (!informs(result.interval)) {
    result.interval = {result.change, result.change, 0};
    result.within.reset();
  }
  return result;
}

// The mean of a side, with the noise of the other side if it has a single run.
Change compare_sides(std::span<const double> before, std::span<const double> after, double confidence) {
  Change result;
  result.count = std::min(before.size(), after.size());
  result.change = mean(after) - mean(before);
  result.interval = {result.change, result.change, 0};
  if (before.size() < 2 && after.size() < 2) return result;
  result.evidence = Evidence::repeats;
  const auto noise = [](std::span<const double> side, std::span<const double> other) {
    const std::span<const double> known = side.size() > 1 ? side : other;
    const double deviation = standard_deviation(known);
    return Noise{deviation * deviation / static_cast<double>(side.size()),
                 static_cast<double>(known.size() - 1)};
  };
  // One variance that serves both sides is one estimate, with its own freedom.
  const Noise old_noise = noise(before, after), new_noise = noise(after, before);
  const bool shared = result.count < 2;
  const Estimate estimate =
      shared ? Estimate(result.change, {{old_noise.variance + new_noise.variance, old_noise.freedom}})
             : Estimate(result.change, {old_noise, new_noise});
  result.interval = estimate.interval(confidence);
  result.p_value = estimate.p_value();
  const double old_deviation = standard_deviation(before), new_deviation = standard_deviation(after);
  result.spread = shared ? std::max(old_deviation, new_deviation)
                         : std::sqrt((old_deviation * old_deviation + new_deviation * new_deviation) / 2);
  return result;
}

std::vector<double> logarithms(std::span<const double> values) {
  check_positive(values);
  std::vector<double> result(values.size());
  std::ranges::transform(values, result.begin(), [](double value) { return std::log(value); });
  return result;
}

}  // namespace

// By bisection: 1e-12 is far more precise than any sample.
double normal_quantile(double p) {
  double low = -40, high = 40;
  while (high - low > 1e-12) {
    const double middle = (low + high) / 2;
    (normal_below(middle) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

double student_quantile(double p, double freedom) {
  if (p < 0.5) return -student_quantile(1 - p, freedom);
  double low = 0, high = 1;
  while (student_below(high, freedom) < p && high < 1e12) high *= 2;
  while (high - low > 1e-12 * (1 + high)) {
    const double middle = (low + high) / 2;
    (student_below(middle, freedom) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

bool informs(const ConfidenceInterval& change) {
  constexpr double kWidest = 4;
  return change.low > 0 || change.high < 0 || 1 + change.high <= kWidest * (1 + change.low);
}

const char* name_of(Evidence evidence) {
  constexpr const char* kNames[] = {"too little", "two runs", "repeats", "pairs"};
  return kNames[static_cast<int>(evidence)];
}

const char* name_of(Verdict verdict) {
  constexpr const char* kNames[] = {"more", "less", "same", "undecided"};
  return kNames[static_cast<int>(verdict)];
}

bool Change::beyond_noise() const {
  // Discrete intervals seldom have exactly the requested coverage; they have at least that much if possible.
  return interval.coverage >= kConfidence - 1e-9 && (interval.low > 0 || interval.high < 0);
}

Verdict Change::verdict(double margin) const {
  if (interval.coverage < kConfidence - 1e-9) return Verdict::undecided;
  if (interval.low > -margin && interval.high < margin) return Verdict::same;
  if (!beyond_noise()) return Verdict::undecided;
  return change > 0 ? Verdict::more : Verdict::less;
}

Change compare_paired(std::span<const double> before, std::span<const double> after, double confidence) {
  std::vector<double> ratios = log_ratios(before, after);
  Change result;
  result.count = ratios.size();
  result.evidence = Evidence::pairs;
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
    // If no average is excluded, the interval is the whole range, which misses the change if all signs agree.
    const double widest = 1 - std::ldexp(2.0, -static_cast<int>(ratios.size()));
    result.interval = {averages[from], averages[averages.size() - 1 - from],
                       tail.left_out == 0 ? std::max(0.0, widest) : tail.coverage};
  }
  result.interval.low = std::expm1(result.interval.low);
  result.interval.high = std::expm1(result.interval.high);
  return result;
}

ConfidenceInterval mean_interval(std::span<const double> values, double confidence) {
  return interval_of(Centre::mean, values, confidence);
}

ConfidenceInterval median_interval(std::span<const double> values, double confidence) {
  return interval_of(Centre::median, values, confidence);
}

Change compare_means(std::span<const double> before, std::span<const double> after, double run_spread,
                     double confidence) {
  return compare_two_runs(Centre::mean, before, after, run_spread, confidence);
}

Change compare_medians(std::span<const double> before, std::span<const double> after, double run_spread,
                       double confidence) {
  return compare_two_runs(Centre::median, before, after, run_spread, confidence);
}

double geometric_mean(std::span<const double> values) { return std::exp(mean(logarithms(values))); }

Change compare_repeats(std::span<const double> before, std::span<const double> after, double confidence) {
  Change result = compare_sides(logarithms(before), logarithms(after), confidence);
  result.change = std::expm1(result.change);
  result.interval = grown(result.interval);
  if (!informs(result.interval)) result.interval = {result.change, result.change, 0};
  return result;
}

Change compare_repeats_by_difference(std::span<const double> before, std::span<const double> after,
                                     double confidence) {
  return compare_sides(before, after, confidence);
}

}  // namespace redline
