// A warning that may recur many times: it is printed the first time, and again whenever its count has doubled
// since.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace redline::train {

class Folded {
 public:
  // Counts one more; whether to print it.
  bool say() {
    if (++count_ < next_) return false;
    next_ = 2 * count_;
    return true;
  }
  // To follow the warning: " (8 times so far)"; empty the first time.
  std::string times() const { return count_ < 2 ? "" : fmt::format(" ({} times so far)", count_); }

 private:
  std::int64_t count_ = 0, next_ = 1;
};

}  // namespace redline::train
