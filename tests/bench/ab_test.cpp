#include "bench/ab.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "base/error.h"

namespace redline::bench {
namespace {

// A machine whose speed wanders: log speed is drift, plus noise that neighbouring runs share, plus noise of
// each run alone, plus now and then a run that something disturbs.
struct Machine {
  double spread = 0.01;      // of each run alone
  double shared = 0;         // standard deviation of the noise that neighbours share
  double correlation = 0;    // of that noise from one run to the next
  double drift = 0;          // a run
  double disturbed = 0;      // part of the runs that are slowed down
  double change = 0;         // of B against A
  double first_is_slow = 0;  // what the first run of a pair loses
};

struct Outcome {
  AbResult result;
  AbEnd end = AbEnd::stopped;
};

// Each run takes a second.
Outcome simulate(const Machine& machine, AbOptions options, std::uint64_t seed) {
  options.seed = mix(seed, 1);
  Random noise(seed, 2);
  double shared = machine.shared * noise.normal(), now = 0;
  AbExperiment experiment(options);
  Outcome outcome;
  outcome.end = run_experiment(
      experiment, options,
      [&](Side side) -> std::optional<double> {
        shared = machine.correlation * shared +
                 machine.shared * std::sqrt(1 - machine.correlation * machine.correlation) * noise.normal();
        double log_speed = shared + machine.spread * noise.normal() + machine.drift * now;
        if (noise.uniform() < machine.disturbed) log_speed -= 0.3 * noise.uniform();
        if (std::fmod(now, 2) == 0) log_speed -= machine.first_is_slow;
        if (side == Side::b) log_speed += std::log1p(machine.change);
        now += 1;
        return 100 * std::exp(log_speed);
      },
      [&] { return now; }, [](const AbExperiment&) {});
  outcome.result = experiment.result();
  return outcome;
}

constexpr int kExperiments = 1000;

double claims(const Machine& machine, const AbOptions& options) {
  int count = 0;
  for (int i = 0; i < kExperiments; ++i) {
    const Verdict verdict = simulate(machine, options, static_cast<std::uint64_t>(i)).result.verdict;
    count += verdict == Verdict::faster || verdict == Verdict::slower ? 1 : 0;
  }
  return static_cast<double>(count) / kExperiments;
}

AbOptions lasting(double seconds, double precision = 0.01) {
  AbOptions options;
  options.seconds = seconds;
  options.precision = precision;
  return options;
}

TEST(Ab, SidesThatAreAlikeAreSeldomCalledDifferent) {
  Machine independent, neighbours, near_walk, drifting, disturbed, cold;
  neighbours.shared = near_walk.shared = 0.02;
  neighbours.correlation = 0.9;
  near_walk.correlation = 0.99;
  drifting.drift = 0.002;  // 2% in ten runs
  disturbed.disturbed = 0.2;
  cold.first_is_slow = 0.02;
  // A short one that the time ends, one that ends by its precision at an early look, and one with many looks
  // that never is precise: the error must hold in each.
  for (const AbOptions& options : {lasting(26), lasting(100), lasting(100, 0.0005)}) {
    for (const Machine* machine : {&independent, &neighbours, &near_walk, &drifting, &disturbed, &cold})
      EXPECT_LE(claims(*machine, options), 0.05) << options.seconds << " " << options.precision;
  }
}

TEST(Ab, ARealChangeIsFound) {
  Machine machine;
  machine.shared = 0.02;
  machine.correlation = 0.9;
  machine.change = 0.03;
  EXPECT_GE(claims(machine, lasting(120)), 0.8);
  machine.change = -0.03;
  machine.drift = 0.002;
  EXPECT_GE(claims(machine, lasting(120)), 0.8);
  const Outcome outcome = simulate(machine, lasting(1000), 1);
  EXPECT_EQ(outcome.end, AbEnd::precise);
  EXPECT_EQ(outcome.result.verdict, Verdict::slower);
  EXPECT_NEAR(outcome.result.change, -0.03, 0.01);
}

TEST(Ab, TheIntervalHoldsTheTruthWhereverItEnds) {
  Machine machine;
  machine.shared = 0.02;
  machine.correlation = 0.9;
  machine.change = 0.05;
  int missed = 0;
  for (int i = 0; i < kExperiments; ++i) {
    const ConfidenceInterval held =
        simulate(machine, lasting(60), static_cast<std::uint64_t>(i)).result.interval;
    ASSERT_GE(held.coverage, 0.95);
    missed += held.low > machine.change || held.high < machine.change ? 1 : 0;
  }
  EXPECT_LE(missed, 50);
}

TEST(Ab, AlikeSidesAreTheSameOnceTheIntervalIsNarrow) {
  int same = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Outcome outcome = simulate({}, lasting(1000), seed);
    EXPECT_EQ(outcome.end, AbEnd::precise);
    same += outcome.result.verdict == Verdict::same ? 1 : 0;
  }
  EXPECT_GE(same, 90);
}

TEST(Ab, NoiseLeavesItUndecided) {
  Machine noisy;
  noisy.spread = 0.3;
  const Outcome outcome = simulate(noisy, lasting(40), 3);
  EXPECT_EQ(outcome.end, AbEnd::time);
  EXPECT_EQ(outcome.result.verdict, Verdict::undecided);
  EXPECT_EQ(outcome.result.pairs, 20U);
}

TEST(Ab, FewPairsHaveNoInterval) {
  Machine machine;
  machine.change = 1;
  const Outcome few = simulate(machine, lasting(10), 1);  // five pairs: not even all of one sign are 5%
  EXPECT_EQ(few.result.pairs, 5U);
  EXPECT_EQ(few.result.interval.coverage, 0);
  EXPECT_EQ(few.result.verdict, Verdict::undecided);
  EXPECT_NEAR(few.result.change, 1, 0.1);
  EXPECT_EQ(simulate(machine, lasting(12), 1).result.verdict, Verdict::faster);
}

TEST(Ab, LooksSpendNoMoreThanTheWhole) {
  const std::vector<AbLook> looks = looks_until(1000);
  double spent = 0;
  for (const AbLook& look : looks) spent += look.error;
  EXPECT_EQ(looks.front().pairs, 8U);
  EXPECT_EQ(looks[1].pairs, 12U);
  EXPECT_GT(looks.size(), 10U);
  EXPECT_NEAR(spent + error_left(looks.size()), 0.05, 1e-12);
  EXPECT_TRUE(looks_until(7).empty());
}

TEST(Ab, CoinsAreFairAndTheirOwn) {
  int first = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    AbOptions options;
    options.seed = seed;
    AbExperiment experiment(options);
    first += experiment.first() == Side::a ? 1 : 0;
  }
  EXPECT_NEAR(first, 500, 65);  // four standard deviations
}

TEST(Ab, StopsInTheMiddleOfAPairWithoutIt) {
  AbOptions options;
  AbExperiment experiment(options);
  int runs = 0;
  const AbEnd end = run_experiment(
      experiment, options, [&](Side) { return ++runs < 4 ? std::optional(1.0 + 0.01 * runs) : std::nullopt; },
      [] { return 0.0; }, [](const AbExperiment&) {});
  EXPECT_EQ(end, AbEnd::stopped);
  EXPECT_EQ(experiment.pairs(), 1U);
  EXPECT_EQ(experiment.result().verdict, Verdict::undecided);
}

TEST(Ab, RefusesNonsense) {
  AbOptions options;
  options.precision = 0;
  EXPECT_THROW(validate(options), UsageError);
  options = {};
  options.margin = 1.5;
  EXPECT_THROW(validate(options), UsageError);
  options = {};
  options.seconds = 0;
  EXPECT_THROW(validate(options), UsageError);
}

}  // namespace
}  // namespace redline::bench
