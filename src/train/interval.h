// How often something is done: an interval in steps, epochs or seconds, as written on the command line.
#pragma once

#include <cstdint>
#include <string>

namespace redline::train {

struct Interval {
  enum class Unit : std::uint8_t { never, steps, epochs, seconds };
  Unit unit = Unit::never;
  std::int64_t count = 0;
};

// "500" (steps), "2ep" (epochs), "90s", "5m", "1h"; "0" and "off" for never. Throws UsageError naming `flag`.
Interval parse_interval(const std::string& text, const std::string& flag);

}  // namespace redline::train
