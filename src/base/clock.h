// Time that only goes forward, and how it is shown.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace redline {

// Runs from construction or the last restart. A value; reading it from several threads is fine.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void restart() { start_ = Clock::now(); }
  // The seconds so far, starting over: lap times with no gap between them.
  double lap() {
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return seconds;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// A time of the steady clock as a number, to compare it with the clock of a device.
inline std::int64_t steady_nanoseconds(
    std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now()) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// "0:07", "12:40", "1:02:33", "123:00:05"; "-:--" for a negative, infinite or undefined one.
std::string format_duration(double seconds);

// The wall clock now in UTC, "2025-01-31T08:15:00Z": for names and records, never for measuring.
std::string utc_timestamp();

}  // namespace redline
