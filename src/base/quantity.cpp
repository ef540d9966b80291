#include "base/quantity.h"

#include <cstddef>
#include <iterator>

#include <fmt/format.h>

namespace redline {

std::string format_grouped(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::ptrdiff_t first = count < 0 ? 1 : 0;
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > first; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", format_grouped(count), noun, count == 1 ? "" : "s");
}

std::string format_signed(double value, int decimals) {
  const std::string text = fmt::format("{:+.{}f}", value, decimals);
  const bool zero = text.find_first_not_of("+-0.") == std::string::npos;
  return zero ? "+" + text.substr(1) : text;
}

std::string format_joules(double joules) {
  // 999.5 would print as 1e+03: step to the next unit there.
  constexpr const char* kUnits[] = {"J", "kJ", "MJ", "GJ"};
  std::size_t unit = 0;
  for (; joules >= 999.5 && unit + 1 < std::size(kUnits); ++unit) joules /= 1000;
  return fmt::format("{:.3g} {}", joules, kUnits[unit]);
}

}  // namespace redline
