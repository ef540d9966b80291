#include "base/live_line.h"

#include <cstdio>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "base/log.h"

namespace redline {
namespace {

const std::string kErase = "\r\x1b[K";

std::string drawn(const std::string& text) { return kErase + "\x1b[?7l" + text + "\x1b[?7h"; }

TEST(LiveLine, LogLinesAppearAboveIt) {
  testing::internal::CaptureStderr();
  set_up_logging(LogLevel::normal);
  {
    LiveLine line(stderr);
    line.draw("half done");
    log_warning("odd");
  }
  log_warning("later");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), drawn("half done") + kErase + "redline: warning: odd\n" +
                                                        drawn("half done") + kErase +
                                                        "redline: warning: later\n");
}

TEST(LiveLine, ClearingTwiceWritesOnce) {
  testing::internal::CaptureStderr();
  LiveLine line(stderr);
  line.clear();
  line.draw("a");
  line.clear();
  line.clear();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), drawn("a") + kErase);
}

}  // namespace
}  // namespace redline
