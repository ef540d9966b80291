// How much recording slows a run down, measured: before the recorded steps, short windows with and without
// recording take turns, and neighbours are compared. Before against after would compare two moments of the
// machine instead.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/summary.h"

namespace redline::profile {

class TracingWindows {
 public:
  enum class Kind : std::uint8_t { none, untraced, traced };

  // Over the steps from `first` to before `end`. Too few for a comparison, and there are no windows.
  TracingWindows(std::int64_t first, std::int64_t end);

  Kind at(std::int64_t step) const;
  // Whether a window begins with this step, or the last one has ended before it.
  bool turns(std::int64_t step) const;

  // Seconds that a window took, in order.
  void add(Kind kind, double seconds);
  TracingCost cost() const;

 private:
  std::int64_t first_, length_ = 1, windows_ = 0;  // steps of a window; how many windows
  std::vector<double> untraced_, traced_;          // seconds a step
};

}  // namespace redline::profile
