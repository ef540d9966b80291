// Statistics of measurements: quantiles, medians and how sure they are, comparisons, correlations, outliers.
// Nothing here assumes a normal law: times of steps are skewed, and have stragglers.
//
// Values must be finite; an empty sample is InternalError unless a line says otherwise. All functions are
// pure and give the same answer on every machine.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace redline {

inline constexpr double kConfidence = 0.95;

double mean(std::span<const double> values);
double standard_deviation(std::span<const double> values);  // of the sample (n - 1); 0 for a single value

// The value below which the part q (0..1) of the sample lies, linear between neighbours (numpy's default).
// The second form wants rising values, and costs nothing.
double quantile(std::vector<double> values, double q);
double quantile_of_sorted(std::span<const double> sorted, double q);
double median(std::vector<double> values);

// low..high holds the true value with the given coverage, which is what the sample could give: no choice of
// two values out of five holds the median with 95%, so coverage is then less than what was asked for.
struct ConfidenceInterval {
  double low = 0, high = 0;
  double coverage = 0;
};

// Of a quantile by the sample's own order, with no assumption on its law but independence.
ConfidenceInterval quantile_interval(std::span<const double> sorted, double q,
                                     double confidence = kConfidence);

struct Summary {
  std::size_t count = 0;
  double mean = 0, deviation = 0;
  double min = 0, q1 = 0, median = 0, q3 = 0, p90 = 0, p99 = 0, max = 0;
  ConfidenceInterval median_interval;
};
Summary summarize(std::vector<double> values);

// Where a box plot ends and outliers begin: Q1 - 1.5 IQR and Q3 + 1.5 IQR.
struct Whiskers {
  double q1 = 0, median = 0, q3 = 0;
  double low = 0, high = 0;
  bool holds(double value) const { return value >= low && value <= high; }
  // The distance between the whiskers as a part of the median: how much "identical" devices differ. NaN for
  // median 0.
  double variability() const;
};
Whiskers whiskers(std::vector<double> values);
std::vector<std::size_t> outliers(std::span<const double> values,
                                  const Whiskers& whiskers);  // indices, rising

// How `after` stands to `before`, as a relative change: 0.02 is 2% more.
struct Change {
  std::size_t count = 0;  // pairs, or values of the smaller sample
  double change = 0;
  ConfidenceInterval interval;
  double p_value = 1;  // that chance alone does this
  // Whether the interval has its full coverage and leaves no change out.
  bool beyond_noise() const;
};

// Pairs (before[i], after[i]) measured in turns, all positive: Wilcoxon's signed ranks of the logarithms of
// the ratios, exact up to 50 pairs; the change is Hodges and Lehmann's. Needs at least 6 pairs to be beyond
// noise.
Change compare_paired(std::span<const double> before, std::span<const double> after,
                      double confidence = kConfidence);

// Two samples in the order they were measured, positive, of any lengths: the ratio of their medians.
// Neighbours in time are alike (clocks, other work), so each sample is cut into up to 40 stretches, whose
// medians are what the bootstrap draws from; its random numbers are fixed. No p-value. Fewer than 8 values on
// a side have no interval (coverage 0).
Change compare_medians(std::span<const double> before, std::span<const double> after,
                       double confidence = kConfidence);

// Correlation of pairs, -1..1; NaN when a side does not vary or there are fewer than two.
double pearson(std::span<const double> x, std::span<const double> y);
double spearman(std::span<const double> x, std::span<const double> y);  // of ranks; ties share theirs
// By Fisher's transformation; -1..1 with coverage 0 for fewer than four pairs or r that is NaN.
ConfidenceInterval correlation_interval(double r, std::size_t pairs, double confidence = kConfidence);

// Ranks from 1, ties sharing their mean.
std::vector<double> ranks(std::span<const double> values);

}  // namespace redline
