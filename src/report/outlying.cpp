#include "report/outlying.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "base/statistics.h"

namespace redline::report {
namespace {

constexpr double kHeavyTails = 6;  // degrees of freedom assumed for values within a group
constexpr double kMedianEfficiency =
    0.37;  // of a median absolute deviation, relative to a standard deviation

// The continued fraction of the incomplete beta function, by Lentz's method.
double beta_fraction(double a, double b, double x) {
  constexpr int kMostTerms = 300;
  constexpr double kTiny = 1e-300, kEnough = 1e-12;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (std::abs(d) < kTiny ? kTiny : d);
  double result = d;
  for (int term = 1; term <= kMostTerms; ++term) {
    const double m = term;
    for (const double factor : {m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                                -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))}) {
      d = 1 + factor * d;
      d = 1 / (std::abs(d) < kTiny ? kTiny : d);
      c = 1 + factor / c;
      if (std::abs(c) < kTiny) c = kTiny;
      result *= c * d;
    }
    if (std::abs(c * d - 1) < kEnough) break;
  }
  return result;
}

// I_x(a, b).
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                   : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double log_choose(double n, double k) {
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1);
}

// Times are rounded: the smallest difference between two is the resolution.
double resolution(const std::vector<std::vector<double>>& groups) {
  std::vector<double> all;
  for (const std::vector<double>& group : groups) all.insert(all.end(), group.begin(), group.end());
  std::ranges::sort(all);
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 1; i < all.size(); ++i)
    if (all[i] - all[i - 1] > 1e-12) least = std::min(least, all[i] - all[i - 1]);
  return std::isfinite(least) ? least / std::sqrt(12.0) : 1e-12;
}

// Rosner's generalised ESD: removes the farthest value again and again. All values up to the last one that
// was too far from the rest are outliers.
std::vector<double> far_from_the_others(const std::vector<double>& values, double floor, double tails) {
  std::vector<double> result(values.size(), 1);
  std::vector<std::size_t> left(values.size());
  std::iota(left.begin(), left.end(), std::size_t{0});
  double sum = std::accumulate(values.begin(), values.end(), 0.0);
  std::vector<std::size_t> taken;
  std::vector<double> chances;
  const std::size_t most = std::max<std::size_t>(values.size() / 4, 1);
  while (taken.size() < most && left.size() >= kFewestGroups) {
    const auto count = static_cast<double>(left.size());
    const double centre = sum / count;
    const auto farthest =
        std::ranges::max_element(left, {}, [&](std::size_t i) { return std::abs(values[i] - centre); });
    const std::size_t candidate = *farthest;
    left.erase(farthest);
    sum -= values[candidate];
    const double others = sum / (count - 1);
    double squares = 0;
    for (const std::size_t i : left) squares += (values[i] - others) * (values[i] - others);
    const double deviation = std::max(std::sqrt(squares / (count - 2)), floor);
    const double t = std::abs(values[candidate] - others) / deviation / std::sqrt(1 + 1 / (count - 1));
    taken.push_back(candidate);
    chances.push_back(std::min(1.0, 2 * count * student_tail(t, std::min(count - 2, tails))));
  }
  double least = 1;
  for (std::size_t i = taken.size(); i-- > 0;) {
    least = std::min(least, chances[i]);
    result[taken[i]] = least;
  }
  return result;
}

// For single values, whose scatter is only known from each other: more values show more of the tail.
double single_tails(std::size_t count) { return std::min(3 + static_cast<double>(count) / 16, 6.0); }

// How the values within a group scatter.
struct Scatter {
  double scale = 0;
  double degrees = 1;  // of the distribution assumed for the tail
  std::vector<double> above,
      below;  // distances of each value from the others of its group; ascending

  // P(a value lies more than `distance` on the side of `sign` by chance).
  double beyond(double distance, double sign) const {
    const std::vector<double>& seen = sign > 0 ? above : below;
    const auto farther = static_cast<double>(seen.end() - std::ranges::lower_bound(seen, distance));
    return std::max(student_tail(distance / scale, degrees), farther / static_cast<double>(seen.size()));
  }
};

Scatter scatter_of(const std::vector<std::vector<double>>& groups, double floor) {
  Scatter result;
  std::vector<double> distances;
  double independent = 0;
  for (const std::vector<double>& group : groups) {
    const std::size_t count = group.size();
    if (count < 2) continue;
    independent += static_cast<double>(count - 1);
    // From values far apart in time, since neighbours may be correlated.
    for (std::size_t i = 0; i < (count == 2 ? 1 : count); ++i)
      distances.push_back(std::abs(group[i] - group[(i + count / 2) % count]));
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<double> others = group;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      const double apart = group[i] - median(std::move(others));
      result.above.push_back(apart);
      result.below.push_back(-apart);
    }
  }
  if (distances.empty()) return result;
  std::ranges::sort(result.above);
  std::ranges::sort(result.below);
  result.scale = std::max(median(distances) / (std::sqrt(2.0) * kNormalMad), floor);
  result.degrees = std::clamp(kMedianEfficiency * independent, 1.0, kHeavyTails);
  return result;
}

// The probability that more than half of a group's values lie this far out by chance, given the number of
// groups.
double most_lie_out(std::vector<double> values, double centre, const Scatter& scatter, std::size_t groups) {
  const double sign = median(values) > centre ? 1 : -1;
  for (double& value : values) value = sign * (value - centre);
  std::ranges::sort(values, std::ranges::greater{});
  const auto count = static_cast<double>(values.size());
  const std::size_t most = values.size() / 2 + 1;
  const double distance = values[most - 1];
  if (distance <= 0) return 1;
  const auto needed = static_cast<double>(most);
  const double chance = log_choose(count, needed) + needed * std::log(scatter.beyond(distance, sign));
  return std::min(1.0, 2 * static_cast<double>(groups) * std::exp(chance));
}

}  // namespace

double student_tail(double t, double degrees) {
  return 0.5 * incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
}

std::vector<double> standing_out(const std::vector<std::vector<double>>& groups) {
  std::vector<double> result(groups.size(), 1);
  std::vector<std::size_t> places;
  std::vector<double> medians;
  bool single = true;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].empty()) continue;
    places.push_back(i);
    medians.push_back(median(groups[i]));
    single &= groups[i].size() == 1;
  }
  if (places.size() < kFewestGroups) return result;
  const double floor = resolution(groups), centre = median(medians);
  const std::vector<double> far = far_from_the_others(
      medians, floor, single ? single_tails(places.size()) : std::numeric_limits<double>::infinity());
  const Scatter scatter = single ? Scatter() : scatter_of(groups, floor);
  for (std::size_t i = 0; i < places.size(); ++i) {
    result[places[i]] = far[i];
    if (!single && far[i] < 1)
      result[places[i]] = std::max(far[i], most_lie_out(groups[places[i]], centre, scatter, places.size()));
  }
  return result;
}

}  // namespace redline::report
