// A line on the terminal that tells how far long work is: "drawing 2300 of 5000 images, 1150/s, 0:02 left".
// Where stderr is not a terminal, a plain line every ten seconds.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/live_line.h"

namespace redline::cli {

// Used by one thread at a time.
class ProgressLine {
 public:
  ProgressLine(std::string what, std::string unit);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Cheap enough to call for every item.
  void update(std::int64_t done, std::int64_t total);

  // Takes the line away, so that other output can follow.
  void clear() { line_.clear(); }

 private:
  std::string what_;
  std::string unit_;
  bool terminal_;
  LiveLine line_;
  std::int64_t done_ = 0, total_ = 0;  // told last
  double last_ = 0;                    // seconds at which the line was written last
  Stopwatch watch_;
};

}  // namespace redline::cli
