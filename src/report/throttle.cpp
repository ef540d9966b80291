#include "report/throttle.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "profile/nvml.h"

namespace redline::report {
namespace {

struct ReasonWords {
  std::string_view reason, words;
};
// An idle GPU or clocks that a user set do not count.
constexpr ReasonWords kReasons[] = {{"sw_power_cap", "power cap"},
                                    {"hw_slowdown", "hardware slowdown"},
                                    {"sync_boost", "sync boost"},
                                    {"sw_thermal", "thermal slowdown by the driver"},
                                    {"hw_thermal", "thermal slowdown by the hardware"},
                                    {"power_brake", "power brake"}};

// Our files name reasons; others may have NVML's bits.
std::string named(const std::string& text) {
  std::uint64_t bits = 0;
  const bool hex = text.starts_with("0x");
  const char* begin = text.data() + (hex ? 2 : 0);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, bits, hex ? 16 : 10);
  return error == std::errc() && stop == end && begin != end ? profile::throttle_text(bits) : text;
}

bool has_reason(std::string_view list, std::string_view reason) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find('|'), list.size());
    if (list.substr(0, end) == reason) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace

std::string words_of(const std::string& reason) {
  const auto found = std::ranges::find(kReasons, reason, &ReasonWords::reason);
  return found == std::end(kReasons) ? reason : std::string(found->words);
}

std::vector<Throttle> throttle_of(const Telemetry& telemetry, double from, double to) {
  std::vector<Throttle> found;
  // What came after the last kept mark is unknown.
  if (telemetry.throttle.size() >= Telemetry::kMostMarks)
    to = std::min(to, telemetry.throttle.back().seconds);
  if (!(to > from)) return found;
  for (const ReasonWords& entry : kReasons) {
    double held = 0;
    for (std::size_t i = 0; i < telemetry.throttle.size(); ++i) {
      const Telemetry::Mark& mark = telemetry.throttle[i];
      const double until = i + 1 < telemetry.throttle.size() ? telemetry.throttle[i + 1].seconds : to;
      if (has_reason(named(mark.text), entry.reason))
        held += std::max(0.0, std::min(until, to) - std::max(mark.seconds, from));
    }
    if (held > 0) found.push_back({std::string(entry.reason), std::min(held / (to - from), 1.0)});
  }
  return found;
}

}  // namespace redline::report
