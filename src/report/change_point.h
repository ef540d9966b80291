// Changes of speed within a run: a device that throttles late, or is set free.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace redline::report {

// The speed was one thing before a step and another from it on.
struct SpeedChange {
  std::size_t at = 0;            // index of the first step of the later part
  double before = 0, after = 0;  // medians, seconds
  double p_value = 1;            // that steps like these shift so much by chance, for one run looked at
  double jump = 0;               // how much of it came at once: the logarithm of a ratio
  double change() const { return after / before - 1; }
};

// What is to be known of a run's steps to judge a change.
struct SpeedHistory {
  std::size_t steps = 0;
  std::vector<double> stretches;  // medians of equal stretches of steps, in order
  double usual_jump = 0;  // standard deviation of a jump from one stretch to the next but one, as a log
  std::optional<SpeedChange> candidate;  // the clearest change, which may still be chance
};

// Of the step times of a run, in order, positive. Steps that are near in time are alike, by an amount nobody
// knows, so the test is self-normalised (Shao and Zhang, 2010). Medians of stretches stand for the steps, so
// that stragglers do not matter. None for fewer steps than kFewestSteps.
inline constexpr std::size_t kFewestSteps = 50;
std::optional<SpeedHistory> speed_history(std::span<const double> seconds);

// The chance that the candidate is none, for one run looked at: a speed that wanders is told from one that
// changes by how sudden it was. `usual_jump` is the usual one of runs like this, from `jumps` of them.
double chance_of(const SpeedChange& candidate, double usual_jump, std::size_t jumps);

// Medians of at most `most` stretches of equal length, in order: how a run went, for charts.
std::vector<double> stretch_medians(std::span<const double> values, std::size_t most);

}  // namespace redline::report
