// Measures how much recording slows a run down. Before the recorded steps, short windows with and without
// recording alternate, and neighbours are compared, so that slow changes of the machine cancel out.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/summary.h"

namespace redline::profile {

class TracingWindows {
 public:
  enum class Kind : std::uint8_t { none, untraced, traced };

  // Windows over the steps [first, end); none if there are too few steps for a comparison.
  TracingWindows(std::int64_t first, std::int64_t end);

  Kind at(std::int64_t step) const;
  // Whether a window begins with this step, or the last one ended before it.
  bool turns(std::int64_t step) const;

  // Adds the seconds that a window took, in order.
  void add(Kind kind, double seconds);
  TracingCost cost() const;

 private:
  std::int64_t first_, length_ = 1, windows_ = 0;  // length_: steps per window; windows_: their number
  std::vector<double> untraced_, traced_;          // seconds per step
};

}  // namespace redline::profile
