// Means and deviations of drawn regions, beside those that torchvision's draws have.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <istream>
#include <string>

#include "data/images/image.h"

namespace redline::data {

class RegionMoments {
 public:
  // A region of an image: its share of the area, `log_ratio`, and the place of its middle.
  void add(const Rect& r, int width, int height, double log_ratio) {
    ASSERT_TRUE(r.x >= 0 && r.y >= 0 && r.width > 0 && r.height > 0 && r.x + r.width <= width &&
                r.y + r.height <= height);
    const double values[4] = {double(r.width) * r.height / (double(width) * height), log_ratio,
                              (r.x + r.width / 2.0) / width, (r.y + r.height / 2.0) / height};
    ++draws_;
    for (std::size_t k = 0; k < 4; ++k) {
      sums_[k] += values[k];
      squares_[k] += values[k] * values[k];
    }
  }

  // `theirs` has a mean and a deviation of each, of 50,000 draws. Four standard errors of the difference let
  // a right implementation fail once in 16,000 runs, and the draws are fixed.
  void expect_like(std::istream& theirs, const std::string& what) const {
    for (std::size_t k = 0; k < 4; ++k) {
      double mean = 0, deviation = 0;
      theirs >> mean >> deviation;
      const double ours = sums_[k] / draws_, spread = std::sqrt(squares_[k] / draws_ - ours * ours);
      EXPECT_NEAR(ours, mean, 4 * deviation * std::sqrt(1.0 / draws_ + 1.0 / 50000))
          << what << " value " << k;
      EXPECT_NEAR(spread, deviation, 0.03 * deviation) << what << " value " << k;
    }
  }

 private:
  int draws_ = 0;
  std::array<double, 4> sums_{}, squares_{};
};

}  // namespace redline::data
