// Notices a loss that jumps: far above the recent ones, by their median and its spread, which a single odd
// value does not move.
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

  // The loss of the next step. Gives the spike when one begins; the steps that belong to it are not told
  // again, and do not count as normal. What is not finite is no spike: it is counted elsewhere.
  std::optional<Spike> add(double loss);

 private:
  static constexpr std::size_t kWindow = 64;
  static constexpr int kLongest = 32;  // steps after which a new level is taken for normal

  std::vector<double> recent_;  // a ring of the last kWindow normal losses
  std::size_t next_ = 0;
  int in_spike_ = 0;  // steps since it began
};

}  // namespace redline::train
