#include "base/clock.h"

#include <cmath>
#include <ctime>

#include <fmt/format.h>

namespace redline {

std::string format_duration(double seconds) {
  // Past ten thousand years it is a mistake, and would overflow the integer below.
  if (!(seconds >= 0) || seconds > 3.2e11) return "-:--";
  const long long total = std::llround(seconds);
  const long long hours = total / 3600;
  const long long minutes = total / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
  return fmt::format("{}:{:02}", minutes, total % 60);
}

std::string utc_timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, length};
}

}  // namespace redline
