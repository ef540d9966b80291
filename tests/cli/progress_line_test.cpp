#include "cli/progress_line.h"

#include <gtest/gtest.h>

namespace redline::cli {
namespace {

TEST(RecentRate, IsThatOfAllAtFirst) {
  RecentRate rate;
  EXPECT_DOUBLE_EQ(rate.at(1, 10), 10);
  EXPECT_DOUBLE_EQ(rate.at(10, 200), 20);
}

// As when a conversion is continued: a thousand images a second that are there, then ten that are not.
TEST(RecentRate, ForgetsWhatWasLongAgo) {
  RecentRate rate;
  double last = 0;
  for (int second = 1; second <= 100; ++second)
    last = rate.at(second, second <= 20 ? 1000 * second : 20'000 + 10 * (second - 20));
  EXPECT_DOUBLE_EQ(last, 10);
}

// Work whose items take longer than what counts as recent.
TEST(RecentRate, CountsTheLastItemAtLeast) {
  RecentRate rate;
  EXPECT_DOUBLE_EQ(rate.at(50, 1), 0.02);
  EXPECT_DOUBLE_EQ(rate.at(150, 2), 0.01);
  EXPECT_DOUBLE_EQ(rate.at(160, 2), 1.0 / 110);
}

}  // namespace
}  // namespace redline::cli
