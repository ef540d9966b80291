// The four sums of a loss: of a batch, or added up over batches, steps and ranks.
#pragma once

#include <array>
#include <span>

#include "graph/op.h"

namespace redline::graph {

// Sums over samples, by LossMetric.
struct LossSums {
  std::array<double, kLossMetrics> values{};

  LossSums& operator+=(const LossSums& other) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += other.values[i];
    return *this;
  }
  bool operator==(const LossSums&) const = default;

  double samples() const { return values[kSamples]; }
  double loss() const { return mean(kLossSum); }
  double top1() const { return mean(kCorrect1); }  // fractions of one
  double top5() const { return mean(kCorrect5); }

 private:
  double mean(LossMetric sum) const { return samples() > 0 ? values[sum] / samples() : 0; }
};

// As the tensor "metrics" has them.
inline LossSums loss_sums(std::span<const float, kLossMetrics> metrics) {
  LossSums sums;
  for (std::size_t i = 0; i < metrics.size(); ++i) sums.values[i] = metrics[i];
  return sums;
}

}  // namespace redline::graph
