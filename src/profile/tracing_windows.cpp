#include "profile/tracing_windows.h"

#include <algorithm>
#include <span>

namespace redline::profile {
namespace {

constexpr std::int64_t kFewest = 6;  // pairs: with fewer, no difference is beyond noise
constexpr std::int64_t kWanted = 10;
constexpr std::int64_t kLongest = 10;  // steps: keeps neighbours close in time

}  // namespace

TracingWindows::TracingWindows(std::int64_t first, std::int64_t end) : first_(first) {
  const std::int64_t steps = std::max<std::int64_t>(0, end - first);
  length_ = std::clamp<std::int64_t>(steps / (2 * kWanted), 1, kLongest);
  const std::int64_t pairs = steps / (2 * length_);
  if (pairs >= kFewest) windows_ = 2 * pairs;
}

TracingWindows::Kind TracingWindows::at(std::int64_t step) const {
  if (step < first_ || step >= first_ + windows_ * length_) return Kind::none;
  const std::int64_t window = (step - first_) / length_;
  // The order within pairs alternates, so that a machine that gets slower favours neither.
  const bool second = window % 2 == 1, turned = window / 2 % 2 == 1;
  return second != turned ? Kind::traced : Kind::untraced;
}

bool TracingWindows::turns(std::int64_t step) const {
  return windows_ > 0 && step >= first_ && step <= first_ + windows_ * length_ &&
         (step - first_) % length_ == 0;
}

void TracingWindows::add(Kind kind, double seconds) {
  if (kind == Kind::none) return;
  (kind == Kind::traced ? traced_ : untraced_).push_back(seconds / static_cast<double>(length_));
}

TracingCost TracingWindows::cost() const {
  TracingCost cost;
  cost.pairs = std::min(untraced_.size(), traced_.size());
  if (cost.pairs == 0) return cost;
  const std::span untraced(untraced_.data(), cost.pairs), traced(traced_.data(), cost.pairs);
  cost.untraced_step = median({untraced.begin(), untraced.end()});
  cost.traced_step = median({traced.begin(), traced.end()});
  cost.change = compare_paired(untraced, traced);
  return cost;
}

}  // namespace redline::profile
