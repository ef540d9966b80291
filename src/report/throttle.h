// What held a GPU's clocks below what it could do. An idle GPU, or clocks that a user chose, are not that.
#pragma once

#include <string>
#include <vector>

#include "report/profile.h"

namespace redline::report {

struct Throttle {
  std::string reason;  // as telemetry names it: "sw_power_cap"
  double share = 0;    // of the time
};
std::string words_of(const std::string& reason);  // for people: "power cap"

// In which part of the time from `from` to `to`, in seconds of the telemetry, each reason was there.
std::vector<Throttle> throttle_of(const Telemetry& telemetry, double from, double to);

}  // namespace redline::report
