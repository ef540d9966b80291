// Detects loss spikes: a loss far above the recent ones, by their median and spread, and far beyond the
// largest of them, so that a loss that often jumps is not reported each time.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace redline::train {

class LossWatch {
 public:
  struct Spike {
    double median = 0;  // of the losses before
    int window = 0;     // how many those were
  };

  // Adds the loss of the next step; returns the spike if it is one. A loss that is not finite is not a spike:
  // the trainer counts it.
  std::optional<Spike> add(double loss);

 private:
  static constexpr std::size_t kWindow = 64;

  std::vector<double> recent_;  // a ring of the last kWindow losses
  std::size_t next_ = 0;
};

}  // namespace redline::train
