// Changes of speed within a run, such as a device that starts or stops throttling.
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
  double p_value = 1;            // of a shift this large by chance, for a single run
  double jump = 0;               // how much of it came at once, as the log of a ratio
  double change() const { return after / before - 1; }
};

// What is needed to judge whether a run's speed changed.
struct SpeedHistory {
  std::size_t steps = 0;
  std::vector<double> stretches;  // medians over equal stretches of steps, in order
  double usual_jump = 0;  // standard deviation of the log ratio between a stretch and the next but one
  std::optional<SpeedChange> candidate;  // the clearest change; it may still be chance
};

// Takes a run's step times in order; all must be positive. Neighbouring steps are correlated by an unknown
// amount, so the test is self-normalised (Shao and Zhang, 2010). It works on medians of stretches, so that
// stragglers do not matter. Returns nothing for fewer than kFewestSteps steps.
inline constexpr std::size_t kFewestSteps = 50;
std::optional<SpeedHistory> speed_history(std::span<const double> seconds);

// The probability that the candidate is chance, for a single run. A sudden change is more convincing than a
// drift. `usual_jump` is the typical jump of similar runs, estimated from `jumps` of them.
double chance_of(const SpeedChange& candidate, double usual_jump, std::size_t jumps);

// Medians of at most `most` equal stretches, in order, for charts.
std::vector<double> stretch_medians(std::span<const double> values, std::size_t most);

}  // namespace redline::report
