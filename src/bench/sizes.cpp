#include "bench/sizes.h"

#include <charconv>
#include <string_view>
#include <system_error>

#include "base/error.h"

namespace redline::bench {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;

}  // namespace

std::vector<std::size_t> parse_sizes(const std::string& text, const char* flag) {
  const auto bytes_of = [&](std::string_view word) {
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    const std::string_view unit(end, static_cast<std::size_t>(word.data() + word.size() - end));
    const std::size_t scale = unit.empty()                   ? 1
                              : unit == "K" || unit == "KiB" ? std::size_t{1} << 10
                              : unit == "M" || unit == "MiB" ? std::size_t{1} << 20
                              : unit == "G" || unit == "GiB" ? std::size_t{1} << 30
                                                             : 0;
    if (error != std::errc() || scale == 0 || number == 0)
      throw UsageError("{} {}: '{}' is not a number; write 128, 64K or 16M, or a range as 128-128M", flag,
                       text, word);
    if (number > kMostBytes / scale) throw UsageError("{} {}: the largest is 1G", flag, text);
    return number * scale;
  };
  std::vector<std::size_t> sizes;
  std::string_view rest = text;
  while (true) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const std::size_t dash = item.find('-');
    const std::size_t first = bytes_of(item.substr(0, dash));
    const std::size_t last = dash == std::string_view::npos ? first : bytes_of(item.substr(dash + 1));
    if (last < first) throw UsageError("{} {}: {} ends before it begins", flag, text, item);
    for (std::size_t size = first; size <= last; size *= 2) sizes.push_back(size);
    if (item.size() == rest.size()) return sizes;
    rest.remove_prefix(item.size() + 1);
  }
}

}  // namespace redline::bench
