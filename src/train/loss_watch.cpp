#include "train/loss_watch.h"

#include <algorithm>
#include <cmath>

#include "base/statistics.h"

namespace redline::train {
namespace {

constexpr double kThreshold = 10;   // robust standard deviations: noise of small batches stays well below
constexpr double kPerMad = 1.4826;  // standard deviations in a median absolute deviation, for a normal law
// Of the median: a loss that hardly moves is not watched to the last digit.
constexpr double kLeastSpread = 0.01;
constexpr double kBeyond = 2;  // times as far from the median as the farthest of the window

}  // namespace

std::optional<LossWatch::Spike> LossWatch::add(double loss) {
  if (!std::isfinite(loss)) return {};
  if (recent_.size() < kWindow) {
    recent_.push_back(loss);
    return {};
  }
  const double centre = median(recent_), largest = std::ranges::max(recent_);
  std::vector<double> deviations(recent_.size());
  std::ranges::transform(recent_, deviations.begin(), [&](double value) { return std::abs(value - centre); });
  const double spread = std::max(kPerMad * median(deviations), kLeastSpread * std::abs(centre));
  const double distance = std::max(kThreshold * spread, kBeyond * (largest - centre));
  // It joins the window: the median tolerates outliers, and the next loss is compared with their size.
  recent_[next_] = loss;
  next_ = (next_ + 1) % kWindow;
  if (loss <= centre + distance) return {};
  return Spike{centre, static_cast<int>(kWindow)};
}

}  // namespace redline::train
