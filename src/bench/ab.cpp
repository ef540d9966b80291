#include "bench/ab.h"

#include <cmath>

#include "base/error.h"

namespace redline::bench {
namespace {

constexpr std::size_t kFirstLook = 8;
constexpr double kError = 1 - kConfidence;
constexpr double kSpend = 1.0 / 3;  // of the error left, at each look

std::size_t next_look(std::size_t pairs) { return pairs + pairs / 2; }

}  // namespace

void validate(const AbOptions& options) {
  if (!(options.precision > 0 && options.precision < 1))
    throw UsageError("--precision {}% is not between 0% and 100%", 100 * options.precision);
  if (!(options.margin > 0 && options.margin < 1))
    throw UsageError("--margin {}% is not between 0% and 100%", 100 * options.margin);
  if (!(options.seconds > 0)) throw UsageError("--time {} s leaves no time", options.seconds);
}

std::vector<AbLook> looks_until(std::size_t pairs) {
  std::vector<AbLook> looks;
  for (std::size_t at = kFirstLook; at <= pairs; at = next_look(at))
    looks.push_back({at, kSpend * error_left(looks.size())});
  return looks;
}

double error_left(std::size_t looks) { return kError * std::pow(1 - kSpend, static_cast<double>(looks)); }

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "slower";
    case Verdict::same:
      return "same";
    case Verdict::undecided:
      break;
  }
  return "undecided";
}

const char* name_of(AbEnd end) {
  switch (end) {
    case AbEnd::precise:
      return "precise";
    case AbEnd::time:
      return "time";
    case AbEnd::stopped:
      break;
  }
  return "stopped";
}

AbResult judge(const std::vector<double>& a, const std::vector<double>& b, double error, double margin) {
  AbResult result;
  result.pairs = a.size();
  if (a.empty()) return result;
  const Change change = compare_paired(a, b, 1 - error);
  result.change = change.change;
  // With too few pairs for the level there is no interval: even the range of all pairs covers less.
  if (change.interval.coverage < 1 - error - 1e-9) return result;
  result.interval = change.interval;
  if (result.interval.low > 0) {
    result.verdict = Verdict::faster;
  } else if (result.interval.high < 0) {
    result.verdict = Verdict::slower;
  } else if (result.interval.low >= -margin && result.interval.high <= margin) {
    result.verdict = Verdict::same;
  }
  return result;
}

AbExperiment::AbExperiment(const AbOptions& options) : options_(options), coins_(options.seed) {
  validate(options);
}

Side AbExperiment::first() { return coins_.below(2) == 0 ? Side::a : Side::b; }

bool AbExperiment::add(double a, double b) {
  a_.push_back(a);
  b_.push_back(b);
  const std::vector<AbLook> looks = looks_until(a_.size());
  if (looks.size() == looks_) return false;
  looks_ = looks.size();
  last_ = judge(a_, b_, looks.back().error, options_.margin);
  precise_ = last_->interval.coverage > 0 && last_->half_width() <= options_.precision;
  return precise_;
}

AbResult AbExperiment::result() const {
  if (precise_ && last_->pairs == pairs()) return *last_;
  return judge(a_, b_, error_left(looks_), options_.margin);
}

AbEnd run_experiment(AbExperiment& experiment, const AbOptions& options, const AbMeasure& measure,
                     const AbClock& clock, const AbProgress& progress) {
  const double begin = clock();
  const auto pair_seconds = [&] { return (clock() - begin) / static_cast<double>(experiment.pairs()); };
  while (experiment.pairs() == 0 || clock() + pair_seconds() <= options.seconds) {
    const Side first = experiment.first();
    const std::optional<double> one = measure(first);
    const std::optional<double> two = one ? measure(other(first)) : std::nullopt;
    if (!two) return AbEnd::stopped;
    const bool precise = first == Side::a ? experiment.add(*one, *two) : experiment.add(*two, *one);
    progress(experiment);
    if (precise) return AbEnd::precise;
  }
  return AbEnd::time;
}

}  // namespace redline::bench
