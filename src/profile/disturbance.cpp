#include "profile/disturbance.h"

#include <fmt/format.h>

#include "base/clock.h"

namespace redline::profile {
namespace {

std::string percent(double part) { return fmt::format("{:.1f}%", 100 * part); }

}  // namespace

bool cpu_disturbed(const TelemetrySummary& t) {
  if (!t.cpu) return false;
  return t.cpu->stolen > kMuchSteal || (t.cpu->others > kMuchOthers && t.cpu->idle() < kLittleIdle);
}

bool power_bound(const TelemetrySummary& t) {
  if (!t.sm_clock_mhz || !t.max_sm_clock_mhz || !t.power_w || !t.power_limit_w) return false;
  // Near the limit, but the driver reports another reason: then it is that.
  const bool other_reason = (t.throttle & kThrottleFault) != 0 && (t.throttle & kThrottlePower) == 0;
  const bool at_limit =
      t.power_capped >= kMuchCapped || (*t.power_w >= kNearLimit * *t.power_limit_w && !other_reason);
  return at_limit && *t.sm_clock_mhz < kFullClock * *t.max_sm_clock_mhz;
}

std::string power_text(const TelemetrySummary& t) {
  // A GPU keeps to its limit over a second or so: the mean of a few samples may lie above it.
  constexpr double kMoment = 5;  // seconds
  const std::string time = t.seconds < 60 ? fmt::format("{:.2g} s", t.seconds) : format_duration(t.seconds);
  const std::string power =
      *t.power_w < *t.power_limit_w + 0.5
          ? fmt::format("{:.0f} of {:.0f} W on average over {}", *t.power_w, *t.power_limit_w, time)
          : fmt::format("{:.0f} W on average over {}, {}above the limit of {:.0f} W", *t.power_w, time,
                        t.seconds < kMoment ? "momentarily " : "", *t.power_limit_w);
  return fmt::format("{}, the clock at {:.0f} of {:.0f} MHz", power, *t.sm_clock_mhz, *t.max_sm_clock_mhz);
}

std::vector<Finding> findings(const TelemetrySummary& t, bool host_computes, bool alone) {
  std::vector<Finding> all;
  if (t.seconds < kShortestRun) return all;
  const auto disturbed = [&](std::string text) { all.push_back({"disturbed", std::move(text)}); };
  if (t.cpu && t.cpu->stolen > kMuchSteal)
    disturbed(fmt::format("the host of this virtual machine took {} of the CPU time (steal)",
                          percent(t.cpu->stolen)));
  if (host_computes && alone && t.cpu && t.cpu->others > kMuchOthers && t.cpu->idle() < kLittleIdle)
    disturbed(fmt::format("other processes used {} of the CPU time", percent(t.cpu->others)));
  if (t.other_processes.value_or(0) > 0)
    disturbed(fmt::format(
        "{} computed on this GPU too",
        *t.other_processes == 1 ? "another process" : fmt::format("{} other processes", *t.other_processes)));
  if (t.faulted > kMuchFaulted)
    disturbed(fmt::format("the GPU's clock was held down in {} of the samples ({})", percent(t.faulted),
                          throttle_text(t.throttle & kThrottleFault)));
  if (power_bound(t)) all.push_back({"bound", "the power limit sets the GPU's speed: " + power_text(t)});
  return all;
}

}  // namespace redline::profile
