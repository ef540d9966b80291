#include "base/error.h"

#include <gtest/gtest.h>

namespace redline {
namespace {

TEST(Error, CarriesItsMessageAndExitCode) {
  try {
    throw UsageError("--lr {} is negative", -0.5);
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "--lr -0.5 is negative");
    EXPECT_EQ(e.code(), ExitCode::usage);
  }
  EXPECT_EQ(static_cast<int>(DataError("x").code()), 65);
  EXPECT_EQ(static_cast<int>(UnavailableError("x").code()), 69);
  EXPECT_EQ(static_cast<int>(InternalError("x").code()), 70);
  EXPECT_EQ(static_cast<int>(IoError("x").code()), 74);
  EXPECT_EQ(static_cast<int>(TryAgainError("x").code()), 75);
}

TEST(Check, ThrowsInEveryBuildType) {
  EXPECT_NO_THROW(check(true, "fine"));
  EXPECT_THROW(check(false, "{} of {}", 1, 2), InternalError);
}

}  // namespace
}  // namespace redline
