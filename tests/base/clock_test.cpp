#include "base/clock.h"

#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace redline {
namespace {

TEST(Duration, ReadsAsAClockDoes) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(7.4), "0:07");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(760), "12:40");
  EXPECT_EQ(format_duration(3753), "1:02:33");
  EXPECT_EQ(format_duration(123 * 3600 + 5), "123:00:05");
}

TEST(Duration, SaysWhenThereIsNone) {
  EXPECT_EQ(format_duration(-1), "-:--");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "-:--");
  EXPECT_EQ(format_duration(std::nan("")), "-:--");
}

TEST(Stopwatch, LapsAddUpToTheWhole) {
  Stopwatch whole, laps;
  double sum = 0;
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    sum += laps.lap();
  }
  const double total = whole.seconds();
  EXPECT_GE(sum, 0.015);
  EXPECT_LE(sum, total + 1e-3);
  laps.restart();
  EXPECT_LT(laps.seconds(), sum);
}

TEST(Timestamp, IsUtcInIso8601) {
  std::string text = utc_timestamp();
  EXPECT_TRUE(text.starts_with("20")) << text;
  for (char& c : text)
    if (c >= '0' && c <= '9') c = '0';
  EXPECT_EQ(text, "0000-00-00T00:00:00Z");
}

}  // namespace
}  // namespace redline
