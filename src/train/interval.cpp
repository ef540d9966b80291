#include "train/interval.h"

#include <charconv>
#include <string_view>

#include "base/error.h"

namespace redline::train {
namespace {

constexpr std::int64_t kMost = 1'000'000'000;  // of any unit; seconds stay far from overflow

}  // namespace

Interval parse_interval(const std::string& text, const std::string& flag) {
  if (text == "off" || text == "0") return {};
  std::int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, count);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  if (error == std::errc() && count > 0 && count <= kMost) {
    if (unit.empty()) return {Interval::Unit::steps, count};
    if (unit == "ep") return {Interval::Unit::epochs, count};
    if (unit == "s") return {Interval::Unit::seconds, count};
    if (unit == "m") return {Interval::Unit::seconds, count * 60};
    if (unit == "h") return {Interval::Unit::seconds, count * 3600};
  }
  throw UsageError("{} '{}' is not an interval: give steps (500), epochs (1ep), time (90s, 5m, 1h) or off",
                   flag, text);
}

}  // namespace redline::train
