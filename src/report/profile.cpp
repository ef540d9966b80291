#include "report/profile.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "report/csv.h"

namespace redline::report {
namespace {

constexpr std::size_t kMostSamples = std::size_t{1} << 20;
constexpr std::size_t kMostColumns = 64;
constexpr int kUnix = -1, kSeconds = -2, kThrottle = -3, kIgnored = -4, kRank = -5, kHost = -6, kDevice = -7;
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

}  // namespace

void Telemetry::clear() {
  const std::string name = source;
  *this = {};
  source = name;
}

const Telemetry::Column* Telemetry::column(std::string_view name) const {
  const auto found = std::ranges::find(columns, name, &Column::name);
  return found == columns.end() ? nullptr : &*found;
}

void Telemetry::halve() {
  const auto keep_even = [](auto& values) {
    for (std::size_t i = 0; 2 * i < values.size(); ++i) values[i] = values[2 * i];
    values.resize((values.size() + 1) / 2);
  };
  keep_even(seconds);
  for (Column& column : columns) keep_even(column.values);
  stride *= 2;
}

void Telemetry::add_line(std::string_view line) {
  const std::vector<std::string_view> cells = split_plain_row(line);
  if (!has_header_) {
    has_header_ = true;
    for (std::string_view name : cells) {
      if (name == "unix_seconds") {
        place_.push_back(kUnix);
      } else if (name == "seconds") {
        place_.push_back(kSeconds);
      } else if (name.ends_with("throttle")) {
        place_.push_back(kThrottle);
      } else if (name == "rank" || name == "host" || name == "device") {
        place_.push_back(name == "rank" ? kRank : name == "host" ? kHost : kDevice);
      } else if (columns.size() < kMostColumns) {
        place_.push_back(static_cast<int>(columns.size()));
        columns.push_back({std::string(name), {}});
      } else {
        place_.push_back(kIgnored);
      }
    }
    return;
  }
  // The wall clock joins the parts of a resumed run; the other clock restarts with each process.
  const bool has_unix = std::ranges::find(place_, kUnix) != place_.end();
  double now = std::numeric_limits<double>::quiet_NaN();
  // A later version may continue the same file with more columns at the end.
  if (cells.size() >= place_.size()) {
    for (std::size_t i = 0; i < place_.size(); ++i)
      if (place_[i] == (has_unix ? kUnix : kSeconds)) now = number_of(cells[i]);
  }
  if (!std::isfinite(now) || (rows_ > 0 && now < last_)) {
    ++damaged;
    return;
  }
  if (rows_ == 0) {
    first_ = now;
    for (std::size_t i = 0; i < place_.size(); ++i) {
      std::string* word = place_[i] == kRank     ? &rank
                          : place_[i] == kHost   ? &host
                          : place_[i] == kDevice ? &device
                                                 : nullptr;
      if (word != nullptr) *word = cells[i].substr(0, 100);
    }
  }
  last_ = now;
  for (std::size_t i = 0; i < place_.size(); ++i) {
    if (place_[i] != kThrottle || cells[i].empty()) continue;
    const bool changed = throttle.empty() ? cells[i] != "none" : throttle.back().text != cells[i];
    if (changed && throttle.size() < kMostMarks)
      throttle.push_back({now - first_, std::string(cells[i].substr(0, 100))});
  }
  if (rows_++ % stride != 0) return;
  seconds.push_back(now - first_);
  for (std::size_t i = 0; i < place_.size(); ++i) {
    if (place_[i] < 0) continue;
    Column& column = columns[static_cast<std::size_t>(place_[i])];
    double value = number_of(cells[i]);
    if (std::isfinite(value) && column.name == "gpu_energy_mj") {
      if (!first_energy_) first_energy_ = value;
      value -= *first_energy_;
    }
    column.values.push_back(std::isfinite(value) ? static_cast<float>(value) : kNone);
  }
  if (seconds.size() == kMostSamples) halve();
}

}  // namespace redline::report
