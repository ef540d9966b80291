// What a run's telemetry says about the machine it ran on: what disturbed the run, so that its times are not
// those of a quiet machine, and what bounds its speed. A fact that the machine does not tell makes no claim.
#pragma once

#include <string>
#include <vector>

#include "profile/telemetry.h"

namespace redline::profile {

// Parts of one from which on a run counts as disturbed.
inline constexpr double kMuchSteal = 0.02;   // of the CPU time: the host of the virtual machine took it
inline constexpr double kMuchOthers = 0.10;  // of the CPU time: other processes used it
inline constexpr double kLittleIdle = 0.20;  // of the CPU time: with more left, nobody waited for a processor
inline constexpr double kMuchFaulted = 0.01;  // of the samples: the clock was held down by heat or a fault
// The power limit bounds the speed where it held the clock down in this part of the samples, or the mean
// power is this part of the limit; and the mean clock is below this part of the highest.
inline constexpr double kMuchCapped = 0.5, kNearLimit = 0.95, kFullClock = 0.98;
// Shares of a shorter time are those of a moment.
inline constexpr double kShortestRun = 1;  // seconds

// Whether others took so much of the CPU time that what was computed on the CPU waited for it. False when
// that is not known.
bool cpu_disturbed(const TelemetrySummary& telemetry);
// Whether the GPU's clock is below its highest because of the power limit. False when that is not known.
bool power_bound(const TelemetrySummary& telemetry);
// "686 of 700 W on average over 2:10, the clock at 1680 of 1980 MHz"; wants power_bound().
std::string power_text(const TelemetrySummary& telemetry);

struct Finding {
  std::string what;  // "disturbed" or "bound": metrics::Notice::what
  std::string text;
};

// Of a run on the CPU (`host_computes`) or on a GPU. `alone`: no other rank of the job is on this machine,
// whose CPU time would count as that of others.
std::vector<Finding> findings(const TelemetrySummary& telemetry, bool host_computes, bool alone);

}  // namespace redline::profile
