#include "profile/cool_down.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace redline::profile {
namespace {

// Readings one after the other; none where a reading is missing.
struct Readings {
  std::vector<std::optional<double>> values;
  std::size_t at = 0;
  std::optional<double> operator()() { return values[std::min(at++, values.size() - 1)]; }
};

TEST(CoolDown, WaitsUntilTheTargetIsReached) {
  Readings readings{{60, std::nullopt, 51, 41, 30}};
  const std::atomic<bool> stop = false;
  std::vector<double> told;
  const Cooled cooled = wait_until_cool([&] { return readings(); }, {41, 10, 0.001}, stop,
                                        [&](double now) { told.push_back(now); });
  EXPECT_EQ(cooled, Cooled::yes);
  EXPECT_EQ(told, (std::vector<double>{60, 51, 41}));
}

TEST(CoolDown, GivesUpAndCanBeStopped) {
  std::atomic<bool> stop = false;
  const auto hot = [] { return std::optional<double>(90); };
  EXPECT_EQ(wait_until_cool(hot, {41, 0.01, 0.001}, stop, [](double) {}), Cooled::too_slow);
  EXPECT_EQ(wait_until_cool(hot, {41, 10, 0.001}, stop, [&](double) { stop = true; }), Cooled::stopped);
}

TEST(CoolDown, ACardThatIsNotThereIsAnError) { EXPECT_THROW(Thermometer("ffff:ff:1f.0"), UnavailableError); }

}  // namespace
}  // namespace redline::profile
