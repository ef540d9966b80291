#include "data/decode_split.h"

#include <algorithm>
#include <cmath>

namespace redline::data {
namespace {

constexpr double kSmoothing = 0.2;  // weight of the newest batch
constexpr double kRise = 1.0 / 16;  // of the share, a batch
constexpr double kFall = 1.0 / 64;  // slower, so that it does not swing
constexpr double kWaited = 0.02;    // share of the time that the trainer may wait before something changes
constexpr double kGpuSlack = 0.8;   // a GPU that is busy for less has room for more
constexpr double kMostShare = 15.0 / 16;  // the GPU is never left out, or it could not be measured

void smooth(double& mean, double value) { mean = mean == 0 ? value : mean + kSmoothing * (value - mean); }

}  // namespace

bool DecodeSplit::cpu_row(int row) const { return std::floor((row + 1) * share_) > std::floor(row * share_); }

double DecodeSplit::balanced() const {
  const double gpu = gpu_ - screen_;
  if (gpu <= 0) return 0;                      // the threads are slower at reading than the GPU at decoding
  return cpu_ > 0 ? gpu / (gpu + cpu_) : 0.5;  // unknown before the first row: rises until there is one
}

void DecodeSplit::observe(const DecodeCost& cost, double period, double waited) {
  if (fixed_ || period <= 0) return;
  if (cost.gpu_rows > 0) {
    smooth(gpu_, cost.gpu_seconds / cost.gpu_rows);
    smooth(screen_, cost.screen_seconds / cost.gpu_rows / threads_);
  }
  if (cost.cpu_rows > 0) smooth(cpu_, cost.cpu_seconds / cost.cpu_rows / threads_);
  const double target = std::min(balanced(), kMostShare);
  if (waited > kWaited * period)
    share_ += std::clamp(target - share_, -kFall, kRise);
  else if (cost.gpu_seconds < kGpuSlack * period)
    share_ = std::max(0.0, share_ - kFall);
}

}  // namespace redline::data
