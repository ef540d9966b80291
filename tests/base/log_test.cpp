#include "base/log.h"

#include <string>

#include <gtest/gtest.h>

namespace redline {
namespace {

std::string logged_at(LogLevel level) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  set_up_logging(level);
  log_debug("detail");
  log_info("happens");
  log_warning("odd {}", 3);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "") << "logs must leave stdout alone";
  return testing::internal::GetCapturedStderr();
}

TEST(Log, WritesLinesOfItsLevelToStderr) {
  EXPECT_EQ(logged_at(LogLevel::quiet), "redline: warning: odd 3\n");
  EXPECT_EQ(logged_at(LogLevel::normal), "redline: info: happens\nredline: warning: odd 3\n");
  EXPECT_EQ(logged_at(LogLevel::verbose),
            "redline: debug: detail\nredline: info: happens\nredline: warning: odd 3\n");
}

}  // namespace
}  // namespace redline
