#include "report/change_point.h"

#include <algorithm>
#include <cmath>

#include "base/statistics.h"
#include "report/outlying.h"

namespace redline::report {
namespace {

constexpr std::size_t kStretches = 40;
constexpr std::size_t kShortest = 5;      // steps in a stretch
constexpr std::size_t kFewestBeside = 3;  // stretches on either side of a change
constexpr double kLeastChange = 0.01;     // smaller ones matter to nobody

// Sums of a series up to each place, so that the mean of any part costs nothing.
class Means {
 public:
  explicit Means(const std::vector<double>& values) : sums_(values.size() + 1) {
    for (std::size_t i = 0; i < values.size(); ++i) sums_[i + 1] = sums_[i] + values[i];
  }
  double of(std::size_t begin, std::size_t end) const {
    return (sums_[end] - sums_[begin]) / static_cast<double>(end - begin);
  }

 private:
  std::vector<double> sums_;
};

// How much the values of [begin, end) wander about their mean: what a shift is measured against.
double wandering(const Means& means, std::size_t begin, std::size_t end) {
  double sum = 0;
  const auto length = static_cast<double>(end - begin);
  for (std::size_t i = begin + 1; i < end; ++i) {
    const auto left = static_cast<double>(i - begin), right = static_cast<double>(end - i);
    const double apart = left * right / length * (means.of(begin, i) - means.of(i, end));
    sum += apart * apart;
  }
  return sum;
}

struct Split {
  std::size_t at = 0;
  double statistic = 0;
};

// Shao and Zhang's statistic: the largest over all places.
Split best_split(const std::vector<double>& values) {
  const Means means(values);
  const std::size_t count = values.size(), margin = std::max(kFewestBeside, count / 10);
  const auto all = static_cast<double>(count);
  Split best;
  for (std::size_t at = margin; at + margin <= count; ++at) {
    const auto left = static_cast<double>(at);
    const double apart = left * (all - left) / all * (means.of(0, at) - means.of(at, count));
    const double noise = (wandering(means, 0, at) + wandering(means, at, count)) / all;
    const double statistic = noise > 0 ? apart * apart / noise : apart != 0 ? 1e12 : 0;
    if (statistic > best.statistic) best = {at, statistic};
  }
  return best;
}

// Of the statistic under no change, fitted to the law's known quantiles (29.6 at 10% to 121.9 at 0.1%), which
// falls exponentially with the root.
double chance_of_shift(double statistic) {
  return std::min(1.0, std::exp(2.16 - 0.82 * std::sqrt(statistic)));
}

// A stretch may have both speeds in it, so jumps are from one to the next but one.
double jump_to(const std::vector<double>& values, std::size_t i) { return values[i] - values[i - 2]; }

double usual_jump(const std::vector<double>& values, std::size_t at) {
  std::vector<double> elsewhere;
  for (std::size_t i = 2; i < values.size(); ++i)
    if (i < at || i > at + 1) elsewhere.push_back(std::abs(jump_to(values, i)));
  return median(std::move(elsewhere)) / kNormalMad;
}

// The largest one about a place, in the direction of the shift.
double jump_at(const std::vector<double>& values, std::size_t at, double shift) {
  double largest = 0;
  for (std::size_t i = std::max<std::size_t>(at, 3) - 1; i <= at + 2 && i < values.size(); ++i)
    largest = std::max(largest, shift > 0 ? jump_to(values, i) : -jump_to(values, i));
  return largest;
}

// The step near a stretch's begin at which the two levels meet best.
std::size_t refine(std::span<const double> seconds, std::size_t near, std::size_t reach, double before,
                   double after) {
  const std::size_t begin = near > reach ? near - reach : 1, end = std::min(near + reach, seconds.size() - 1);
  double cost = 0, least = 0;
  std::size_t best = begin;
  for (std::size_t i = begin; i < end; ++i) {  // step i goes to the earlier part
    cost += std::abs(seconds[i] - before) - std::abs(seconds[i] - after);
    if (cost < least) {
      least = cost;
      best = i + 1;
    }
  }
  return best;
}

}  // namespace

std::vector<double> stretch_medians(std::span<const double> values, std::size_t most) {
  const std::size_t count = std::min(most, values.size());
  std::vector<double> medians(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = static_cast<std::ptrdiff_t>(i * values.size() / count);
    const auto end = static_cast<std::ptrdiff_t>((i + 1) * values.size() / count);
    medians[i] = median({values.begin() + begin, values.begin() + end});
  }
  return medians;
}

std::optional<SpeedHistory> speed_history(std::span<const double> seconds) {
  if (seconds.size() < kFewestSteps) return {};
  SpeedHistory history;
  history.steps = seconds.size();
  const std::size_t count = std::min(kStretches, seconds.size() / kShortest);
  history.stretches = stretch_medians(seconds, count);
  std::vector<double> levels = history.stretches;
  for (double& level : levels) level = std::log(level);
  const Split split = best_split(levels);
  history.usual_jump = usual_jump(levels, split.at);
  if (split.at == 0) return history;
  const auto middle = levels.begin() + static_cast<std::ptrdiff_t>(split.at);
  const double shift = median({middle, levels.end()}) - median({levels.begin(), middle});
  SpeedChange found;
  found.jump = jump_at(levels, split.at, shift);
  if (std::abs(shift) < kLeastChange || found.jump < std::abs(shift) / 2) return history;
  found.p_value = chance_of_shift(split.statistic);
  const std::size_t near = split.at * seconds.size() / count;
  const auto median_of = [&](std::size_t begin, std::size_t end) {
    return median({seconds.begin() + static_cast<std::ptrdiff_t>(begin),
                   seconds.begin() + static_cast<std::ptrdiff_t>(end)});
  };
  found.at =
      refine(seconds, near, 2 * seconds.size() / count, median_of(0, near), median_of(near, seconds.size()));
  found.before = median_of(0, found.at);
  found.after = median_of(found.at, seconds.size());
  history.candidate = found;
  return history;
}

double chance_of(const SpeedChange& candidate, double usual_jump, std::size_t jumps) {
  constexpr double kPlaces = 4;         // about the change, of which the largest was taken
  constexpr double kEfficiency = 0.18;  // jumps overlap, and their median is what the usual one is known from
  constexpr double kTails = 10;
  const double degrees = std::clamp(kEfficiency * static_cast<double>(jumps), 2.0, kTails);
  const double jump = usual_jump > 0 ? 2 * kPlaces * student_tail(candidate.jump / usual_jump, degrees) : 0;
  return std::min(1.0, std::max(candidate.p_value, jump));
}

}  // namespace redline::report
