#include "base/statistics.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"

namespace redline {
namespace {

// Expected values are NumPy's and SciPy's for the same input; what differs is rounding alone.
constexpr double kRounding = 1e-12;

const std::vector<double> kTimes = {12.1, 11.8, 12.5, 13.0, 11.9, 12.2, 12.4, 19.7, 12.0, 12.3};

std::vector<double> count_to(std::size_t n) {
  std::vector<double> values(n);
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST(Statistics, SummaryIsNumPys) {
  const Summary summary = summarize(kTimes);
  EXPECT_EQ(summary.count, 10u);
  EXPECT_NEAR(summary.mean, 12.99, kRounding);
  EXPECT_NEAR(summary.deviation, 2.382552319584096, kRounding);
  EXPECT_NEAR(summary.q1, 12.025, kRounding);
  EXPECT_NEAR(summary.median, 12.25, kRounding);
  EXPECT_NEAR(summary.q3, 12.475, kRounding);
  EXPECT_NEAR(summary.p90, 13.67, kRounding);
  EXPECT_NEAR(summary.p99, 19.097, kRounding);
  EXPECT_EQ(summary.min, 11.8);
  EXPECT_EQ(summary.max, 19.7);
  EXPECT_EQ(summary.median_interval.low, 11.9);
  EXPECT_EQ(summary.median_interval.high, 13.0);
}

TEST(Statistics, MedianOfEvenAndOddCounts) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(quantile({7}, 0.3), 7);
  EXPECT_EQ(standard_deviation(std::vector<double>{7}), 0);
  EXPECT_THROW(median({}), InternalError);
  EXPECT_THROW(summarize({}), InternalError);
}

TEST(Statistics, IntervalsOfQuantilesAreBinomial) {
  const ConfidenceInterval of_median = quantile_interval(count_to(100), 0.5);
  EXPECT_EQ(of_median.low, 40);
  EXPECT_EQ(of_median.high, 61);
  EXPECT_NEAR(of_median.coverage, 0.9647997997822951, 1e-10);
  const ConfidenceInterval of_p90 = quantile_interval(count_to(100), 0.9);
  EXPECT_EQ(of_p90.low, 84);
  EXPECT_EQ(of_p90.high, 96);
}

TEST(Statistics, SmallSamplesSayWhatTheyCannotGive) {
  const ConfidenceInterval of_five = quantile_interval(count_to(5), 0.5);
  EXPECT_EQ(of_five.low, 1);
  EXPECT_EQ(of_five.high, 5);
  EXPECT_NEAR(of_five.coverage, 0.9375, kRounding);
  EXPECT_NEAR(quantile_interval(count_to(6), 0.5).coverage, 0.96875, kRounding);
  EXPECT_NEAR(quantile_interval(count_to(1), 0.5).coverage, 0, kRounding);
}

TEST(Statistics, MedianIntervalHoldsTheMedianAsOftenAsItSays) {
  int held = 0;
  constexpr int kTrials = 2000;
  for (int trial = 0; trial < kTrials; ++trial) {
    Random random(1, static_cast<std::uint64_t>(trial));
    std::vector<double> sample(25);
    for (double& value : sample) value = -std::log(1 - random.uniform());  // exponential: median ln 2
    const ConfidenceInterval interval = summarize(sample).median_interval;
    held += interval.low <= std::log(2.0) && std::log(2.0) <= interval.high;
  }
  // 95.7% for 25 values; four standard deviations of 2000 trials are 1.8 points.
  EXPECT_NEAR(held / double{kTrials}, 0.957, 0.018);
}

TEST(Statistics, WhiskersAndOutliers) {
  const Whiskers box = whiskers(kTimes);
  EXPECT_NEAR(box.low, 12.025 - 1.5 * 0.45, kRounding);
  EXPECT_NEAR(box.high, 12.475 + 1.5 * 0.45, kRounding);
  EXPECT_NEAR(box.variability(), 4 * 0.45 / 12.25, kRounding);
  EXPECT_EQ(outliers(kTimes, box), std::vector<std::size_t>{7});
  EXPECT_TRUE(std::isnan(whiskers({0, 0, 0}).variability()));
}

const std::vector<double> kBefore = {10.0, 10.4, 9.8, 10.1, 10.3, 9.9, 10.2, 10.6};
const std::vector<double> kAfter = {10.3, 10.5, 10.2, 10.3, 10.4, 10.35, 10.15, 10.9};

TEST(Statistics, PairedComparisonIsWilcoxons) {
  const Change change = compare_paired(kBefore, kAfter);
  EXPECT_NEAR(change.p_value, 0.015625, kRounding);
  EXPECT_NEAR(change.change, 0.02200230976037478, kRounding);
  EXPECT_NEAR(change.interval.low, 0.007374285399088284, kRounding);
  EXPECT_NEAR(change.interval.high, 0.03769850236867057, kRounding);
  EXPECT_NEAR(change.interval.coverage, 0.9609375, kRounding);
  EXPECT_TRUE(change.beyond_noise());
}

TEST(Statistics, ManyPairsUseTheNormalLaw) {
  std::vector<double> before(60, 1.0), after(60);
  for (int i = 0; i < 60; ++i) after[static_cast<std::size_t>(i)] = std::exp(((i * 37) % 61 - 25.3) / 100.0);
  EXPECT_NEAR(compare_paired(before, after).p_value, 0.050208144556511035, 1e-9);
}

TEST(Statistics, FewOrEqualPairsAreNeverBeyondNoise) {
  const std::vector<double> one(5, 1.0), more(5, 2.0), same(20, 3.0);
  EXPECT_FALSE(compare_paired(one, more).beyond_noise());
  EXPECT_NEAR(compare_paired(one, more).change, 1.0, kRounding);
  EXPECT_FALSE(compare_paired(same, same).beyond_noise());
  EXPECT_EQ(compare_paired(same, same).p_value, 1);
  EXPECT_THROW(compare_paired(one, same), InternalError);
  EXPECT_THROW(compare_paired(std::vector<double>{0.0}, std::vector<double>{1.0}), InternalError);
}

TEST(Statistics, CorrelationsAreSciPys) {
  const std::vector<double> x = {106, 100, 86, 101, 99, 103, 97, 113, 112, 110};
  const std::vector<double> y = {7, 27, 2, 50, 28, 29, 20, 12, 6, 17};
  const double r = pearson(x, y);
  EXPECT_NEAR(r, -0.07021632602905677, kRounding);
  EXPECT_NEAR(correlation_interval(r, 10).low, -0.670212501188516, 1e-9);
  EXPECT_NEAR(correlation_interval(r, 10).high, 0.5852854717450895, 1e-9);
  EXPECT_NEAR(spearman(x, y), -0.17575757575757575, kRounding);
  EXPECT_NEAR(spearman(std::vector<double>{1, 2, 2, 3, 5}, std::vector<double>{2, 1, 4, 4, 6}),
              0.7631578947368421, kRounding);
  EXPECT_TRUE(std::isnan(pearson(std::vector<double>{1, 1, 1}, std::vector<double>{1, 2, 3})));
  EXPECT_TRUE(std::isnan(pearson(std::vector<double>{1, 2}, std::vector<double>{4, 3})));
  EXPECT_EQ(correlation_interval(0.9, 3).coverage, 0);
}

TEST(Statistics, TiesShareTheirRank) {
  EXPECT_EQ(ranks(std::vector<double>{3, 1, 3, 2, 3}), (std::vector<double>{4, 1, 4, 2, 4}));
}

}  // namespace
}  // namespace redline
