// Statistics of measurements: quantiles, medians and how sure they are, comparisons, correlations, outliers.
// Step times are skewed, have stragglers, and are correlated with the step before. So single values are not
// assumed to be normal or independent unless a function says so; means of many are.
//
// Values must be finite; an empty sample is InternalError unless a line says otherwise. All functions are
// pure and give the same answer on every machine.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace redline {

inline constexpr double kConfidence = 0.95;
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// The median absolute deviation of a normal distribution whose standard deviation is 1.
inline constexpr double kNormalMad = 0.6745;

double mean(std::span<const double> values);
double geometric_mean(std::span<const double> values);      // of positive values
double standard_deviation(std::span<const double> values);  // of the sample (n - 1); 0 for a single value

// The value below which the part q (0..1) of the sample lies, linear between neighbours (numpy's default).
// The second form wants rising values, and costs nothing.
double quantile(std::vector<double> values, double q);
double quantile_of_sorted(std::span<const double> sorted, double q);
double median(std::vector<double> values);

// low..high contains the true value with the given coverage. It can be less than requested: no two of five
// values contain the median with 95%.
struct ConfidenceInterval {
  double low = 0, high = 0;
  double coverage = 0;
};

// Of a quantile, by order statistics: assumes independence, but no distribution.
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
  // The distance between the whiskers relative to the median: how much "identical" devices differ. NaN for
  // median 0.
  double variability() const;
};
Whiskers whiskers(std::vector<double> values);
std::vector<std::size_t> outliers(std::span<const double> values,
                                  const Whiskers& whiskers);  // indices, rising

// Whether an interval of a relative change is useful: it excludes zero, or its ends are at most a factor of
// four apart. "-98% to +5950%" only says that the values are too few or too uneven. Comparisons and intervals
// below return coverage 0 instead of such an interval.
bool informs(const ConfidenceInterval& change);

// What a comparison is based on, and so what it can claim.
enum class Evidence {
  too_little,  // too few values for an interval
  two_runs,    // one run per side: it is about these two runs, as the run-to-run spread is not known
  repeats,     // several runs on at least one side, whose spread is known
  pairs        // measured in turns
};
const char* name_of(Evidence evidence);  // "too little", "two runs", ...

enum class Verdict { more, less, same, undecided };
const char* name_of(Verdict verdict);

// Of comparisons. With 95%, in every second series of comparisons of equal things more than one in twenty
// would claim a difference.
inline constexpr double kClaimConfidence = 0.96;
// A change smaller than this is "the same" to people.
inline constexpr double kSameWithin = 0.01;
// The standard deviation between runs that is assumed if it is unknown, relative to the value. With one run
// per side, nothing below 2.9% is then claimed.
inline constexpr double kRunSpread = 0.01;

// How `after` compares with `before`: as a relative change (0.02 is 2% more), or as a difference if the
// function says so.
struct Change {
  std::size_t count = 0;  // pairs, or values or runs of the smaller side
  double change = 0;
  ConfidenceInterval interval;
  double p_value = 1;  // that chance alone does this
  Evidence evidence = Evidence::too_little;
  double spread = 0;  // standard deviation between runs that the interval allows for; 0 for pairs
  std::optional<ConfidenceInterval> within;  // of two runs: of their own values alone, with no such allowance

  // Whether the interval has its full coverage and excludes zero.
  bool beyond_noise() const;
  // More or less when it is beyond noise, the same when the interval lies within the margin on both sides.
  Verdict verdict(double margin = kSameWithin) const;
};

// Pairs (before[i], after[i]) measured in turns, all positive: Wilcoxon's signed ranks of the logarithms of
// the ratios, exact up to 50 pairs; the change is Hodges and Lehmann's. Needs at least 6 pairs to be beyond
// noise.
Change compare_paired(std::span<const double> before, std::span<const double> after,
                      double confidence = kClaimConfidence);

// The mean or median of positive values in the order they were measured. Neighbours in time are correlated
// (clocks, other work), so the interval is that of an autoregressive process with a memory that is estimated,
// conservatively, at several time scales. Coverage is 0 for fewer than 16 values, and for values too uneven
// for an interval that informs().
ConfidenceInterval mean_interval(std::span<const double> values, double confidence = kConfidence);
ConfidenceInterval median_interval(std::span<const double> values, double confidence = kConfidence);

// Two runs of one process each, given as their values in the order they were measured, positive: the ratio of
// their means or medians. The interval also includes a spread between runs: `run_spread`, or the spread
// between stretches of the runs if that is larger. run_spread 0 is for values of one process.
Change compare_means(std::span<const double> before, std::span<const double> after,
                     double run_spread = kRunSpread, double confidence = kClaimConfidence);
Change compare_medians(std::span<const double> before, std::span<const double> after,
                       double run_spread = kRunSpread, double confidence = kClaimConfidence);

// One value per run, with repeated runs on at least one side: Welch's t-test. A side with a single run is
// assumed to vary like the other. Ratios are of positive values, and of their geometric means. One run per
// side gives the change without an interval.
Change compare_repeats(std::span<const double> before, std::span<const double> after,
                       double confidence = kClaimConfidence);
Change compare_repeats_by_difference(std::span<const double> before, std::span<const double> after,
                                     double confidence = kClaimConfidence);

// The value below which the fraction p (0..1) of the distribution lies.
double normal_quantile(double p);
double student_quantile(double p, double freedom);

// Correlation of pairs, -1..1; NaN when a side does not vary or there are fewer than three.
double pearson(std::span<const double> x, std::span<const double> y);
double spearman(std::span<const double> x, std::span<const double> y);  // of ranks; ties share theirs
// By Fisher's transformation; -1..1 with coverage 0 for fewer than four pairs or r that is NaN.
ConfidenceInterval correlation_interval(double r, std::size_t pairs, double confidence = kConfidence);

// Ranks from 1, ties sharing their mean.
std::vector<double> ranks(std::span<const double> values);

}  // namespace redline
