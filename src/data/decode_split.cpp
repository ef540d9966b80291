#include "data/decode_split.h"

#include <algorithm>
#include <cmath>

namespace redline::data {
namespace {

constexpr double kSmoothing = 0.2;  // weight of the newest batch
// Batches begun with the previous share: a few more than a loader has slots.
constexpr int kSettling = 8;
constexpr int kMeasured = 24;  // of which the median counts, so that an evaluation between two does not
constexpr double kSampled = 1.0 / 16;  // share of rows by which the threads' speed is learnt
constexpr double kGain = 0.01;         // that another share must bring
constexpr double kLeast = 1.0 / 64;    // a share that is worth the trouble
constexpr int kLongest = 16'384;       // batches until the choice is looked at again

void smooth(double& mean, double value) { mean = mean == 0 ? value : mean + kSmoothing * (value - mean); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

DecodeSplit::DecodeSplit(int threads, bool fixed) : threads_(threads), fixed_(fixed) {
  if (!fixed) enter(Stage::sample);
}

bool DecodeSplit::cpu_row(int row) const { return std::floor((row + 1) * share_) > std::floor(row * share_); }

double DecodeSplit::loading(double share) const {
  return std::max((1 - share) * gpu_, (1 - share) * screen_ + share * cpu_);
}

double DecodeSplit::balanced() const {
  const double gpu = gpu_ - screen_;
  if (gpu <= 0) return 0;  // the threads are slower at reading than the GPU at decoding
  const double share = gpu / (gpu + cpu_);
  return share > kLeast ? share : 0;
}

bool DecodeSplit::worth_trying(double share, int rows) const {
  if (best_period_ == 0) return true;  // nothing is measured yet
  return std::fabs(share - best_share_) > kLeast && loading(share) * rows < (1 + kGain) * best_period_;
}

int DecodeSplit::stage_length() const {
  if (stage_ == Stage::sample) return kSettling;
  return stage_ == Stage::keep ? keep_ : kSettling + kMeasured;
}

void DecodeSplit::note_costs(const DecodeCost& cost) {
  if (cost.gpu_rows > 0) {
    smooth(gpu_, cost.gpu_seconds / cost.gpu_rows);
    smooth(screen_, cost.screen_seconds / cost.gpu_rows / threads_);
  }
  if (cost.cpu_rows > 0) smooth(cpu_, cost.cpu_seconds / cost.cpu_rows / threads_);
}

void DecodeSplit::enter(Stage stage) {
  stage_ = stage;
  batches_ = 0;
  periods_.clear();
  switch (stage) {
    case Stage::sample:
      share_ = kSampled;
      break;
    case Stage::both:
      share_ = balanced();
      break;
    case Stage::gpu:
      share_ = 0;
      break;
    case Stage::cpu:
      share_ = 1;
      break;
    case Stage::keep:
      share_ = best_share_;
      break;
  }
}

void DecodeSplit::end_stage(int rows) {
  if (stage_ == Stage::keep) {
    // Measured again, as the step may have changed, for example with the image size.
    best_period_ = median(periods_);
    keep_ = std::min(2 * keep_, kLongest);
  } else if (stage_ != Stage::sample) {
    const double period = median(periods_);
    // If the GPU is as fast, the cores are left free.
    const double needed = stage_ == Stage::gpu ? 1 + kGain : 1 - kGain;
    if (best_period_ == 0 || period < needed * best_period_) {
      best_period_ = period;
      best_share_ = share_;
    }
  }
  const Stage begin = stage_ == Stage::keep ? Stage::sample : stage_;
  if (begin < Stage::both && worth_trying(balanced(), rows)) return enter(Stage::both);
  if (begin < Stage::gpu && worth_trying(0, rows)) return enter(Stage::gpu);
  if (begin < Stage::cpu && worth_trying(1, rows)) return enter(Stage::cpu);
  enter(Stage::keep);
}

void DecodeSplit::observe(const DecodeCost& cost, double period) {
  if (fixed_ || period <= 0) return;
  note_costs(cost);
  ++batches_;
  if (batches_ > stage_length() - kMeasured) periods_.push_back(period);
  if (batches_ == stage_length()) end_stage(cost.gpu_rows + cost.cpu_rows);
}

}  // namespace redline::data
