// What a study says of a device, from runs made up so that one rule decides.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "made_run.h"
#include "report/variability.h"

namespace redline::report {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// As of a table: medians alone. Devices and their runs differ by a thousandth or so.
DeviceRun run_of(int device, int repeat, double factor) {
  DeviceRun run;
  run.run = fmt::format("run{}", repeat);
  run.device = fmt::format("gpu{}", device % 4);
  run.node = fmt::format("node{}", device / 4);
  run.median = 0.1 * factor * (1 + 0.001 * ((device + repeat) % 3 - 1) + 0.0003 * (device * 7 % 5 - 2));
  run.deviation = run.clock_mhz = run.memory_clock_mhz = run.temperature_c = run.power_w = kNaN;
  run.change = run.change_at = kNaN;
  return run;
}

// 32 devices of 8 nodes, three runs each; `factor` says how slow a device is.
template <typename Factor>
std::vector<DeviceRun> fleet(Factor factor) {
  std::vector<DeviceRun> runs;
  for (int device = 0; device < 32; ++device)
    for (int repeat = 0; repeat < 3; ++repeat) runs.push_back(run_of(device, repeat, factor(device)));
  return runs;
}

Group device_of(const Variability& found, const std::string& name) {
  const auto at = std::ranges::find(found.devices.groups, name, &Group::name);
  EXPECT_NE(at, found.devices.groups.end()) << name;
  return at == found.devices.groups.end() ? Group() : *at;
}

TEST(VariabilityClass, HalfAPercentIsNotWorthActingOn) {
  // Times that hardly vary: any difference is beyond chance.
  const auto kind = [](double factor) {
    std::vector<DeviceRun> runs = fleet([](int) { return 1.0; });
    for (DeviceRun& run : runs) run.median = 0.1 * (1 + 1e-5 * (run.median / 0.1 - 1));
    for (DeviceRun& run : runs)
      if (run.node == "node1" && run.device == "gpu1") run.median *= factor;
    const Group device = device_of(analyze(runs), "node1/gpu1");
    EXPECT_LT(device.p_value, 1e-3);
    return device.kind;
  };
  EXPECT_EQ(kind(1.004), "normal");
  EXPECT_EQ(kind(1.006), "slow");
}

TEST(VariabilityClass, ThrottledIsWhatAHealthyDeviceNeverShows) {
  const auto kind = [](const char* reason, double share) {
    std::vector<DeviceRun> runs = fleet([](int device) { return device == 5 ? 1.1 : 1.0; });
    for (DeviceRun& run : runs)
      if (run.node == "node1" && run.device == "gpu1") run.throttle = {{reason, share}};
    return device_of(analyze(runs), "node1/gpu1").kind;
  };
  EXPECT_EQ(kind("hw_thermal", 0.06), "throttled");
  EXPECT_EQ(kind("hw_thermal", 0.04), "slow") << "now and then";
  EXPECT_EQ(kind("sw_power_cap", 0.9), "slow") << "many run at their power cap all the time";
  EXPECT_EQ(kind("sync_boost", 0.9), "slow");
}

// A node that is 6% slow, in which one device is not, or is faster than others.
TEST(VariabilityClass, ASlowNodeDoesNotMakeItsGoodDevicesSlow) {
  for (const double other : {1.001, 0.96}) {
    const Variability found = analyze(fleet([&](int device) {
      return device == 11 ? other : device / 4 == 2 ? 1.06 : 1.0;
    }));
    EXPECT_TRUE(found.nodes.groups[0].outlier) << other;
    const Group slow = device_of(found, "node2/gpu0"), good = device_of(found, "node2/gpu3");
    EXPECT_EQ(slow.kind, "slow");
    EXPECT_NE(slow.why.find("as node node2 is"), std::string::npos) << slow.why;
    EXPECT_EQ(good.kind, other < 1 ? "fast" : "normal");
    EXPECT_EQ(good.why.find("as node"), std::string::npos) << good.why;
  }
}

TEST(VariabilityClass, ThrottlingIsToldBeforeOtherChanges) {
  std::vector<DeviceRun> runs = fleet([](int) { return 1.0; });
  runs[0].change_at = runs[1].change_at = 0.5;
  runs[0].change = -0.1;
  runs[1].change = 0.2;
  EXPECT_EQ(device_of(analyze(runs), "node0/gpu0").kind, "unstable");
  runs[1].cause = "heat";
  runs[0].throttle = {{"hw_thermal", 0.4}};
  runs[1].throttle = {{"hw_thermal", 0.1}};
  const Group device = device_of(analyze(runs), "node0/gpu0");
  EXPECT_EQ(device.kind, "throttled");
  EXPECT_EQ(device.why, "20.0% slower after 50% of run1: heat");
  ASSERT_EQ(device.throttle.size(), 1u);
  EXPECT_EQ(device.throttle[0].share, 0.4) << "the most in any of its runs";
}

// A device that was measured more often is no more than one device.
TEST(VariabilityClass, TheMedianIsOfDevicesNotOfRuns) {
  std::vector<DeviceRun> runs;
  for (int repeat = 0; repeat < 9; ++repeat) runs.push_back(run_of(0, repeat, 2));
  for (const int device : {1, 2, 3}) runs.push_back(run_of(device, (3 - device % 3 + 1) % 3, 1));
  const Variability found = analyze(runs);
  EXPECT_NEAR(device_of(found, "gpu1").normalized, 1, 1e-3);
  EXPECT_NEAR(device_of(found, "gpu0").normalized, 2, 1e-2);
}

// Two runs that are 2% apart and three that are 1% apart: 2e-4 with one degree of freedom, 1e-4 with two.
TEST(VariabilityClass, DeviationsOfRunsCountByTheirDegreesOfFreedom) {
  std::vector<DeviceRun> runs(5, run_of(0, 0, 1));
  const double medians[] = {0.099, 0.101, 0.099, 0.1, 0.101};
  for (std::size_t i = 0; i < 5; ++i) {
    runs[i].median = medians[i];
    if (i >= 2) runs[i].device = "gpu1";
  }
  EXPECT_NEAR(analyze(runs).deviations.runs, std::sqrt((2e-4 + 2 * 1e-4) / 3), 1e-9);
}

// Runs of 100 steps, one of which may have slowed down by a fifth at half time.
std::vector<DeviceRun> with_histories(double p_value, double jump, double own_jump) {
  std::vector<DeviceRun> runs = fleet([](int) { return 1.0; });
  for (DeviceRun& run : runs) run.history = SpeedHistory{100, std::vector<double>(20, 0.1), 0.001, {}};
  runs[0].history->usual_jump = own_jump;
  runs[0].history->candidate = SpeedChange{50, 0.1, 0.12, p_value, jump};
  return runs;
}

TEST(VariabilityClass, AChangeIsJudgedByTheNumberOfRunsAndByHowTheRunJumps) {
  const auto changes = [](const std::vector<DeviceRun>& runs) {
    return device_of(analyze(runs), "node0/gpu0").changes;
  };
  EXPECT_EQ(changes(with_histories(1e-4, 0.18, 0.001)), 1u);
  EXPECT_EQ(changes(with_histories(1e-3, 0.18, 0.001)), 0u) << "one in a thousand, and there are 96 runs";
  EXPECT_EQ(changes(with_histories(1e-4, 0.18, 0.1)), 0u) << "it jumps as far all the time";
  EXPECT_EQ(changes(with_histories(1e-4, 0.001, 0.0001)), 0u) << "all others do";
}

// A run that slows down by a fifth after six seconds, beside what its GPU told before and since.
TEST(VariabilityClass, ACauseExplainsTheChangeAndCameWithIt) {
  const auto cause = [](int megahertz, const char* before, const char* since) {
    std::vector<double> seconds;
    for (int i = 0; i < 100; ++i) seconds.push_back((i < 60 ? 0.1 : 0.12) * (1 + 0.001 * (i * 7 % 5 - 2)));
    report::Run run = made_run("run", seconds);
    Telemetry telemetry;
    telemetry.add_line("seconds,gpu_sm_clock_mhz,gpu_throttle");
    for (int i = 0; i <= 108; ++i)
      telemetry.add_line(
          fmt::format("{},{},{}", 0.1 * i, i < 60 ? 1800 : megahertz, i < 60 ? before : since));
    run.telemetry = {telemetry};
    return device_runs(run).at(0).cause;
  };
  EXPECT_EQ(cause(1500, "none", "none"), "the clock fell from 1800 to 1500 MHz");
  EXPECT_EQ(cause(1750, "none", "none"), "") << "3% of the clock are not 20% of the time";
  EXPECT_EQ(cause(1800, "none", "hw_thermal"), "thermal slowdown by the hardware");
  EXPECT_EQ(cause(1800, "hw_thermal", "hw_thermal"), "") << "it was so before";
}

}  // namespace
}  // namespace redline::report
