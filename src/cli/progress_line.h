// A progress line on the terminal: "drawing 2300 of 5000 images, 1150/s, 0:02 left". If stderr is not a
// terminal, a plain line every ten seconds. The rate is a recent one: work that is continued passes quickly
// over what is there.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/live_line.h"

namespace redline::cli {

// Items per second in the last quarter or half of a minute.
class RecentRate {
 public:
  // seconds: of a clock that began when nothing was done; done: never less than before, unless work begins
  // anew with a RecentRate of its own.
  double at(double seconds, std::int64_t done);

 private:
  struct Mark {
    double seconds = 0;
    std::int64_t done = 0;
  };
  Mark from_, recent_;  // the rate counts from from_
};

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
  RecentRate rate_;
  Stopwatch watch_;
};

}  // namespace redline::cli
