// Why a GPU's clocks were held down. An idle GPU or clocks that a user set do not count.
#pragma once

#include <string>
#include <vector>

#include "report/profile.h"

namespace redline::report {

struct Throttle {
  std::string reason;  // as telemetry names it: "sw_power_cap"
  double share = 0;    // fraction of the time
};
std::string words_of(const std::string& reason);  // for people: "power cap"

// The fraction of the time from `from` to `to`, in telemetry seconds, in which each reason applied.
std::vector<Throttle> throttle_of(const Telemetry& telemetry, double from, double to);

}  // namespace redline::report
