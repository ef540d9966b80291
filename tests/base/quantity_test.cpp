#include "base/quantity.h"

#include <gtest/gtest.h>

namespace redline {
namespace {

TEST(Quantity, CountsAreGroupedAndOneIsSingular) {
  EXPECT_EQ(format_grouped(0), "0");
  EXPECT_EQ(format_grouped(999), "999");
  EXPECT_EQ(format_grouped(1281167), "1,281,167");
  EXPECT_EQ(format_grouped(-100), "-100");
  EXPECT_EQ(format_grouped(-1000), "-1,000");
  EXPECT_EQ(counted(0, "step"), "0 steps");
  EXPECT_EQ(counted(1, "step"), "1 step");
  EXPECT_EQ(counted(1000, "step"), "1,000 steps");
}

TEST(Quantity, Joules) {
  EXPECT_EQ(format_joules(0.25), "0.25 J");
  EXPECT_EQ(format_joules(812), "812 J");
  EXPECT_EQ(format_joules(999.7), "1 kJ");
  EXPECT_EQ(format_joules(12345), "12.3 kJ");
  EXPECT_EQ(format_joules(4.094e6), "4.09 MJ");
}

TEST(Signed, ZeroHasNoMinus) {
  EXPECT_EQ(format_signed(1.254, 2), "+1.25");
  EXPECT_EQ(format_signed(-0.26, 1), "-0.3");
  EXPECT_EQ(format_signed(-0.04, 1), "+0.0");
  EXPECT_EQ(format_signed(-1e-9, 2), "+0.00");
  EXPECT_EQ(format_signed(0, 0), "+0");
  EXPECT_EQ(format_signed(-10, 0), "-10");
}

}  // namespace
}  // namespace redline
