// Which of two things is faster: A and B measured in pairs, one right after the other, until the change is
// known as precisely as asked or the time is up.
//
// The design is what makes the answer hold:
// - A fair coin says which side of a pair goes first. If the sides are alike, the sign of a pair's log ratio
//   is that coin, whatever drifts and whatever neighbours have in common. So Wilcoxon's signed ranks have
//   their stated error without assuming that runs are independent.
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
  double precision = 0.01;  // half of the interval's width, as a part of A: where the experiment ends
  double margin = 0.02;     // an interval that lies within +- this and holds zero is called the same
  double seconds = 300;     // no pair is begun that would end later, by the mean of those so far
  std::uint64_t seed = 0;   // of the coins
};

// Throws UsageError for values out of range.
void validate(const AbOptions& options);

// A look at the experiment.
struct AbLook {
  std::size_t pairs = 0;
  double error = 0;  // that this look may spend
};
// The looks that are due up to so many pairs, in order.
std::vector<AbLook> looks_until(std::size_t pairs);
// What these looks leave of the 5%.
double error_left(std::size_t looks);

enum class Verdict : std::uint8_t { faster, slower, same, undecided };
const char* name_of(Verdict verdict);

// B against A. Changes are of speed: 0.02 is B 2% faster.
struct AbResult {
  std::size_t pairs = 0;
  double change = 0;
  ConfidenceInterval interval;  // coverage 0: too few pairs for one
  Verdict verdict = Verdict::undecided;
  double half_width() const { return (interval.high - interval.low) / 2; }
};

// Compares speeds in pairs at a confidence of 1 - error.
AbResult judge(const std::vector<double>& a, const std::vector<double>& b, double error, double margin);

// Pairs so far, the coin for the next one, and what they say.
class AbExperiment {
 public:
  explicit AbExperiment(const AbOptions& options);

  Side first();  // of the next pair
  // The speeds of a pair, both positive. Whether the interval is now as narrow as asked: true at looks only.
  bool add(double a, double b);
  std::size_t pairs() const { return a_.size(); }
  // At the last look; none before the first.
  const std::optional<AbResult>& last_look() const { return last_; }
  // At the look that ended it, or, when it ended between looks, of all pairs with what is left of the error.
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

// Measures a side once and gives its speed, in any unit; empty when it was told to stop.
using AbMeasure = std::function<std::optional<double>(Side side)>;
// Seconds since the experiment began.
using AbClock = std::function<double()>;
// Told after each pair.
using AbProgress = std::function<void(const AbExperiment&)>;

// Runs pairs until the experiment is as precise as asked, the time is up, or `measure` stops it; a pair that
// is not whole is not used. At least one pair is measured, whatever the time.
AbEnd run_experiment(AbExperiment& experiment, const AbOptions& options, const AbMeasure& measure,
                     const AbClock& clock, const AbProgress& progress);

}  // namespace redline::bench
