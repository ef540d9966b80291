#include "profile/disturbance.h"

#include <functional>

#include <gtest/gtest.h>

namespace redline::profile {
namespace {

// A minute on a machine where nothing else happens.
TelemetrySummary quiet_cpu() {
  TelemetrySummary t;
  t.seconds = 60;
  t.cpu = CpuShares{0.95, 0.01, 0.001};
  return t;
}

TelemetrySummary quiet_gpu() {
  TelemetrySummary t = quiet_cpu();
  t.cpu = CpuShares{0.1, 0.4, 0.0};  // a GPU does not wait for a host that is half idle
  t.sm_clock_mhz = 1975;
  t.max_sm_clock_mhz = 1980;
  t.power_w = 520;
  t.power_limit_w = 700;
  t.other_processes = 0;
  return t;
}

std::string told(const TelemetrySummary& t, bool host_computes, bool alone = true) {
  std::string text;
  for (const Finding& finding : findings(t, host_computes, alone))
    text += finding.what + ": " + finding.text + "\n";
  return text;
}

TEST(Findings, AQuietMachineHasNone) {
  EXPECT_EQ(told(quiet_cpu(), true), "");
  EXPECT_EQ(told(quiet_gpu(), false), "");
}

TEST(Findings, WhatIsNotKnownIsNotClaimed) {
  TelemetrySummary nothing;
  nothing.seconds = 60;
  EXPECT_EQ(told(nothing, true), "");
  EXPECT_EQ(told(nothing, false), "");
  EXPECT_FALSE(cpu_disturbed(nothing));
  EXPECT_FALSE(power_bound(nothing));
}

TEST(Findings, Steal) {
  TelemetrySummary t = quiet_cpu();
  t.cpu->stolen = 0.041;
  EXPECT_EQ(told(t, true), "disturbed: the host of this virtual machine took 4.1% of the CPU time (steal)\n");
  EXPECT_TRUE(cpu_disturbed(t));
  t.cpu->stolen = 0.019;
  EXPECT_EQ(told(t, true), "");
  EXPECT_FALSE(cpu_disturbed(t));
}

TEST(Findings, OtherProcessesOnTheProcessors) {
  TelemetrySummary t = quiet_cpu();
  t.cpu = CpuShares{0.55, 0.38, 0};
  EXPECT_EQ(told(t, true), "disturbed: other processes used 38.0% of the CPU time\n");
  EXPECT_EQ(told(t, false), "") << "the GPU computes";
  EXPECT_EQ(told(t, true, /*alone=*/false), "") << "they may be ranks of the same job";
  t.cpu = CpuShares{0.25, 0.38, 0};  // there was room for all
  EXPECT_EQ(told(t, true), "");
  EXPECT_FALSE(cpu_disturbed(t));
}

TEST(Findings, OtherProcessesOnTheGpu) {
  TelemetrySummary t = quiet_gpu();
  t.other_processes = 1;
  EXPECT_EQ(told(t, false), "disturbed: another process computed on this GPU too\n");
  t.other_processes = 3;
  EXPECT_EQ(told(t, false), "disturbed: 3 other processes computed on this GPU too\n");
}

TEST(Findings, Heat) {
  TelemetrySummary t = quiet_gpu();
  t.throttle = 1 | 64;
  t.faulted = 0.25;
  EXPECT_EQ(told(t, false),
            "disturbed: the GPU's clock was held down in 25.0% of the samples (hw_thermal)\n");
  t.faulted = 0.005;
  EXPECT_EQ(told(t, false), "");
}

TEST(Findings, ThePowerLimitIsABoundAndNotADisturbance) {
  TelemetrySummary t = quiet_gpu();
  t.power_w = 686;
  t.sm_clock_mhz = 1680;
  t.throttle = kThrottlePower;
  t.power_capped = 0.97;
  EXPECT_EQ(
      told(t, false),
      "bound: the power limit sets the GPU's speed: 686 of 700 W on average over 1:00, the clock at 1680 of "
      "1980 MHz\n");
  t.power_w = 600;  // on average: it was at the limit in most of the samples
  EXPECT_TRUE(power_bound(t));
  t.power_capped = 0.3;
  EXPECT_FALSE(power_bound(t));
  EXPECT_EQ(told(t, false), "") << "now and then is no bound";
  t.power_w = 686;
  t.throttle = 0;
  t.power_capped = 0;  // a driver that does not tell reasons
  EXPECT_TRUE(power_bound(t));
  t.power_w = 650;  // 93% of the limit
  EXPECT_FALSE(power_bound(t));
  t.power_w = 686;
  t.sm_clock_mhz = 1978;  // near the limit, and yet at full speed
  EXPECT_FALSE(power_bound(t));
  t.sm_clock_mhz = 1200;  // slow, but for another reason
  t.power_w = 300;
  EXPECT_FALSE(power_bound(t));
  t.power_w = 686;
  t.throttle = 64;  // heat is what it says
  EXPECT_FALSE(power_bound(t));
  t.throttle = 0;
  t.power_limit_w.reset();
  EXPECT_FALSE(power_bound(t));
}

TEST(Findings, PowerAboveTheLimitIsSaidToBeMomentary) {
  TelemetrySummary t = quiet_gpu();
  t.seconds = 0.42;
  t.power_w = 742;
  t.sm_clock_mhz = 1680;
  EXPECT_EQ(
      power_text(t),
      "742 W on average over 0.42 s, momentarily above the limit of 700 W, the clock at 1680 of 1980 MHz");
  t.seconds = 90;
  EXPECT_EQ(power_text(t),
            "742 W on average over 1:30, above the limit of 700 W, the clock at 1680 of 1980 MHz");
  t.power_w = 700.3;
  EXPECT_EQ(power_text(t), "700 of 700 W on average over 1:30, the clock at 1680 of 1980 MHz");
}

TEST(Findings, AMomentSaysNothing) {
  TelemetrySummary t = quiet_cpu();
  t.cpu = CpuShares{0.1, 0.8, 0.1};
  t.seconds = 0.4;
  EXPECT_EQ(told(t, true), "");
}

}  // namespace
}  // namespace redline::profile
