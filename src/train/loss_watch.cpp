#include "train/loss_watch.h"

#include <algorithm>
#include <cmath>

#include "base/statistics.h"

namespace redline::train {
namespace {

constexpr double kThreshold = 10;   // robust standard deviations: noise of small batches stays well below
constexpr double kPerMad = 1.4826;  // standard deviations in a median absolute deviation, for a normal law
constexpr double kLeastSpread =
    0.01;  // of the median: a loss that hardly moves is not watched to the last digit

}  // namespace

std::optional<LossWatch::Spike> LossWatch::add(double loss) {
  if (!std::isfinite(loss)) return {};
  if (recent_.size() < kWindow) {
    recent_.push_back(loss);
    return {};
  }
  const double centre = median(recent_);
  std::vector<double> deviations(recent_.size());
  std::ranges::transform(recent_, deviations.begin(), [&](double value) { return std::abs(value - centre); });
  const double spread = std::max(kPerMad * median(deviations), kLeastSpread * std::abs(centre));
  if (loss > centre + kThreshold * spread && in_spike_ < kLongest) {
    if (in_spike_++ > 0) return {};
    return Spike{centre, static_cast<int>(kWindow)};
  }
  if (in_spike_ >= kLongest) recent_.clear();  // a new level: learn it from the start
  in_spike_ = 0;
  if (recent_.size() < kWindow) {
    recent_.push_back(loss);
    next_ = 0;
    return {};
  }
  recent_[next_] = loss;
  next_ = (next_ + 1) % kWindow;
  return {};
}

}  // namespace redline::train
