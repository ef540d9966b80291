#include "base/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include <fmt/format.h>

namespace redline {
namespace {

// Three significant digits without trailing zeros.
std::string three_digits(double value) {
  std::string text = fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

std::string scaled(double value, double base, std::span<const std::string_view> units) {
  std::size_t unit = 0;
  // 999.5 would print as 1000: step to the next unit there.
  while (value >= base - 0.5 && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  return fmt::format("{}{}", three_digits(value), units[unit]);
}

// Optimal string alignment distance: insert, delete, substitute, swap neighbours.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(previous);
    previous.swap(row);
  }
  return previous[b.size()];
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return lower;
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 7> kUnits{" B",   " KiB", " MiB", " GiB",
                                                          " TiB", " PiB", " EiB"};
  return scaled(static_cast<double>(bytes), 1024, kUnits);
}

std::string format_count(double count) {
  static constexpr std::array<std::string_view, 6> kUnits{"", "K", "M", "G", "T", "P"};
  if (!std::isfinite(count)) return "?";
  return count < 0 ? "-" + scaled(-count, 1000, kUnits) : scaled(count, 1000, kUnits);
}

std::string csv_quoted(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string format_count(double count, std::string_view unit) {
  std::string text = format_count(count);
  const std::size_t digits = text.find_first_not_of("-0123456789.");
  return text.insert(std::min(digits, text.size()), " ") + std::string(unit);
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string lower = lower_case(word);
  for (const std::string& candidate : candidates) {
    if (lower_case(candidate) == lower) return candidate;
  }
  // An abbreviation is more likely than a typo: "resnext50" is not "resnet50".
  std::string best;
  if (word.size() >= 2) {
    for (const std::string& candidate : candidates) {
      if (!lower_case(candidate).starts_with(lower)) continue;
      if (!best.empty()) return {};
      best = candidate;
    }
  }
  std::size_t best_edits = best.empty() ? std::max<std::size_t>(1, word.size() / 3) + 1 : 0;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edits(lower, lower_case(candidate));
    if (distance < best_edits) {
      best = candidate;
      best_edits = distance;
    }
  }
  return best;
}

}  // namespace redline
