#include "comm/position.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace redline::comm {
namespace {

TEST(Position, TellsWhatARankIsAtAndWhichCallsWait) {
  Position position;
  EXPECT_EQ(position.text(), "joining; not waiting for other ranks, after 0 calls");
  position.at("training", 58);
  position.begin_call(0, "a barrier", 0);
  position.begin_call(1, "an all-reduce of gradients", 2 << 20);
  const std::regex both(
      R"(at step 58, training; in a barrier for \d\.\d s, its call 1; in an all-reduce of gradients \(2 MiB\) for )"
      R"(\d\.\d s, its call 2)");
  EXPECT_TRUE(std::regex_match(position.text(), both)) << position.text();
  position.end_call(0);
  EXPECT_EQ(position.text().find("barrier"), std::string::npos) << position.text();
  position.end_call(1);
  EXPECT_EQ(position.text(), "at step 58, training; not waiting for other ranks, after 2 calls");
  EXPECT_EQ(position.calls(), 2);
}

}  // namespace
}  // namespace redline::comm
