// A progress line on the terminal: "drawing 2300 of 5000 images, 1150/s, 0:02 left". If stderr is not a
// terminal, a plain line every ten seconds.
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

  // Removes the line, so that other output can follow.
  void clear() { line_.clear(); }

 private:
  std::string what_;
  std::string unit_;
  bool terminal_;
  LiveLine line_;
  std::int64_t done_ = 0, total_ = 0;  // as last reported
  double last_ = 0;                    // when the line was last written, in seconds
  Stopwatch watch_;
};

}  // namespace redline::cli
