// What a run's telemetry says about its machine: what disturbed the run, so that its times are not those of a
// quiet machine, and what bounds its speed. Facts that the machine does not report lead to no finding.
#pragma once

#include <string>
#include <vector>

#include "profile/telemetry.h"

namespace redline::profile {

// Fractions above which a run counts as disturbed.
inline constexpr double kMuchSteal = 0.02;   // of the CPU time: taken by the host of the virtual machine
inline constexpr double kMuchOthers = 0.10;  // of the CPU time: used by other processes
inline constexpr double kLittleIdle = 0.20;  // of the CPU time: with more idle, no one waited for a processor
inline constexpr double kMuchFaulted = 0.01;  // of the samples: the clock was held down by heat or a fault
// The power limit bounds the speed if it lowered the clock in at least this fraction of the samples, or the
// mean power is at least this fraction of the limit; and the mean clock is below this fraction of the
// highest.
inline constexpr double kMuchCapped = 0.5, kNearLimit = 0.95, kFullClock = 0.98;
// Fractions over a shorter time mean little.
inline constexpr double kShortestRun = 1;  // seconds

// Whether other processes took so much CPU time that work on the CPU had to wait. False if unknown.
bool cpu_disturbed(const TelemetrySummary& telemetry);
// Whether the power limit keeps the GPU's clock below its highest. False if unknown.
bool power_bound(const TelemetrySummary& telemetry);
// "686 of 700 W on average over 2:10, the clock at 1680 of 1980 MHz"; requires power_bound().
std::string power_text(const TelemetrySummary& telemetry);

struct Finding {
  std::string what;  // "disturbed" or "bound": metrics::Notice::what
  std::string text;
};

// For a run on the CPU (`host_computes`) or on a GPU. `alone`: no other rank of the job runs on this machine;
// its CPU time would count as other processes'.
std::vector<Finding> findings(const TelemetrySummary& telemetry, bool host_computes, bool alone);

}  // namespace redline::profile
