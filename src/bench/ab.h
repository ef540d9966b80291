// Which of two things is faster: measures A and B in pairs, one right after the other, until the change is
// known with the wanted precision or the time is up.
//
// The design makes the answer reliable:
// - A fair coin decides which side of a pair goes first. If the sides are equally fast, the sign of a pair's
//   log ratio is that coin, whatever drifts and however neighbours are correlated. So Wilcoxon's signed-rank
//   test has its stated error without assuming that runs are independent.
// - The experiment looks at its interval after fixed numbers of pairs: 8, 12, 18, 27, … Each look spends a
//   third of what is left of the 5% error, and the last one, when the time is up, all of it. The intervals
//   therefore hold together, and stopping at a look does not add false claims.
// - It stops when the interval is narrow, never because a change shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/statistics.h"

namespace redline::bench {

enum class Side : std::uint8_t { a, b };
constexpr char letter(Side side) { return side == Side::a ? 'A' : 'B'; }
constexpr Side other(Side side) { return side == Side::a ? Side::b : Side::a; }

struct AbOptions {
  double precision = 0.01;  // half of the interval's width, relative to A, at which the experiment ends
  double margin = 0.02;     // an interval that holds zero and lies within +- this means "same"
  double seconds = 300;     // no pair is started that would end later, by the mean of those so far
  std::uint64_t seed = 0;   // of the coin flips
};

// Throws UsageError for values out of range.
void validate(const AbOptions& options);

// A look at the experiment.
struct AbLook {
  std::size_t pairs = 0;
  double error = 0;  // that this look spends
};
// The looks due within this many pairs, in order.
std::vector<AbLook> looks_until(std::size_t pairs);
// What is left of the 5% after this many looks.
double error_left(std::size_t looks);

enum class Verdict : std::uint8_t { faster, slower, same, undecided };
const char* name_of(Verdict verdict);

// B against A. Changes are of speed: 0.02 is B 2% faster.
struct AbResult {
  std::size_t pairs = 0;
  double change = 0;
  ConfidenceInterval interval;  // coverage 0: too few pairs
  Verdict verdict = Verdict::undecided;
  double half_width() const { return (interval.high - interval.low) / 2; }
};

// Compares speeds in pairs at a confidence of 1 - error.
AbResult judge(const std::vector<double>& a, const std::vector<double>& b, double error, double margin);

// The pairs so far, the coin for the next one, and the result.
class AbExperiment {
 public:
  explicit AbExperiment(const AbOptions& options);

  Side first();  // of the next pair
  // Adds the speeds of a pair, both positive. Returns whether the interval is now narrow enough: true at
  // looks only.
  bool add(double a, double b);
  std::size_t pairs() const { return a_.size(); }
  // The result at the last look; empty before the first.
  const std::optional<AbResult>& last_look() const { return last_; }
  // The result at the look that ended the experiment. If it ended between looks: of all pairs, with the error
  // that is left.
  AbResult result() const;

 private:
  AbOptions options_;
  Random coins_;
  std::vector<double> a_, b_;
  std::size_t looks_ = 0;
  std::optional<AbResult> last_;
  bool precise_ = false;
};

enum class AbEnd : std::uint8_t { precise, time, stopped };
const char* name_of(AbEnd end);

// Measures a side once and returns its speed, in any unit; empty to stop.
using AbMeasure = std::function<std::optional<double>(Side side)>;
// Seconds since the experiment began.
using AbClock = std::function<double()>;
// Called after each pair.
using AbProgress = std::function<void(const AbExperiment&)>;

// Runs pairs until the experiment is precise enough, the time is up, or `measure` stops it. An incomplete
// pair is not used. Measures at least one pair, whatever the time.
AbEnd run_experiment(AbExperiment& experiment, const AbOptions& options, const AbMeasure& measure,
                     const AbClock& clock, const AbProgress& progress);

}  // namespace redline::bench
