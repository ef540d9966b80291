// Comparisons of simulated runs: what is equal is seldom called different, and what differs is found.
#include <cmath>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"
#include "base/statistics.h"

namespace redline {
namespace {

constexpr int kTrials = 1000;
constexpr double kNoise = 0.02;  // of single steps, as a part of the level

// Steps of one run: each resembles the one before by `memory`, and the run as a whole is off by chance.
struct Simulation {
  const char* name;
  double memory = 0, run_spread = 0;

  std::vector<double> run(std::size_t steps, double level, Random& random, double noise = kNoise) const {
    const double own_level = level * (1 + run_spread * random.normal());
    std::vector<double> values(steps);
    double state = random.normal();
    for (double& value : values) {
      value = own_level * (1 + noise * state);
      state = memory * state + std::sqrt(1 - memory * memory) * random.normal();
    }
    return values;
  }
};

const std::vector<Simulation> kSimulations = {{"independent", 0, 0},
                                              {"memory_05", 0.5, 0},
                                              {"memory_09", 0.9, 0},
                                              {"memory_099", 0.99, 0},
                                              {"run_spread", 0, 0.01},
                                              {"spread_and_memory_05", 0.5, 0.01},
                                              {"spread_and_memory_09", 0.9, 0.01}};

bool is_claim(const Change& change) {
  const Verdict verdict = change.verdict();
  return verdict == Verdict::more || verdict == Verdict::less;
}

// Of how many trials the verdict is a change.
int claims(const std::function<Change(Random&)>& trial) {
  int count = 0;
  for (int i = 0; i < kTrials; ++i) {
    Random random(11, static_cast<std::uint64_t>(i));
    count += is_claim(trial(random));
  }
  return count;
}

constexpr double kFaster = 1 / 1.03;  // the time of a step that is 3% faster

class EqualRuns : public ::testing::TestWithParam<Simulation> {};

TEST_P(EqualRuns, AreSeldomCalledDifferent) {
  const Simulation& simulation = GetParam();
  for (std::size_t steps : {100u, 300u}) {
    int means = 0, medians = 0, of_one_process = 0;
    for (int i = 0; i < kTrials; ++i) {
      Random random(11, static_cast<std::uint64_t>(i));
      const auto before = simulation.run(steps, 0.1, random), after = simulation.run(steps, 0.1, random);
      means += is_claim(compare_means(before, after));
      medians += is_claim(compare_medians(before, after));
      // No spread between runs is allowed for: what is left is what neighbours have in common.
      if (simulation.run_spread == 0) of_one_process += is_claim(compare_means(before, after, 0));
    }
    EXPECT_LE(means, kTrials / 20) << "means of " << steps;
    EXPECT_LE(medians, kTrials / 20) << "medians of " << steps;
    EXPECT_LE(of_one_process, kTrials / 20) << steps << " of one process";
  }
}

INSTANTIATE_TEST_SUITE_P(Simulated, EqualRuns, ::testing::ValuesIn(kSimulations),
                         [](const auto& given) { return std::string(given.param.name); });

TEST(TwoRuns, ThatDifferAreFoundWhereTheStepsTell) {
  const auto found = [](const Simulation& simulation, std::size_t steps, double run_spread, double level,
                        double noise = kNoise) {
    return claims([&](Random& random) {
      const auto before = simulation.run(steps, 1, random, noise);
      return compare_means(before, simulation.run(steps, level, random, noise), run_spread);
    });
  };
  constexpr int kMost = kTrials * 8 / 10;
  EXPECT_GE(found(kSimulations[0], 100, 0, kFaster), kMost);
  EXPECT_GE(found(kSimulations[1], 100, 0, kFaster), kMost);
  EXPECT_GE(found(kSimulations[2], 1000, 0, kFaster), kMost);
  // With one run a side, a spread between runs is allowed for: 5% is beyond it, 3% with many steps alone.
  EXPECT_GE(found(kSimulations[0], 100, kRunSpread, 1 / 1.05), kMost);
  EXPECT_GE(found(kSimulations[1], 400, kRunSpread, 1 / 1.05), kMost);
  EXPECT_GE(found(kSimulations[0], 1000, kRunSpread, kFaster, 0.01), kMost);
  EXPECT_LE(found(kSimulations[3], 100, kRunSpread, kFaster), kTrials / 20) << "these data cannot tell";
}

TEST(TwoRuns, SpeakOfThemselvesAlone) {
  Random random(5);
  const Simulation& steady = kSimulations[0];
  const auto before = steady.run(500, 1, random), after = steady.run(500, 1.02, random);
  const Change change = compare_medians(before, after);
  EXPECT_EQ(change.evidence, Evidence::two_runs);
  EXPECT_NEAR(change.change, 0.02, 0.005);
  EXPECT_EQ(change.verdict(), Verdict::undecided) << "1% between runs explains it";
  EXPECT_EQ(change.spread, kRunSpread);
  ASSERT_TRUE(change.within);
  EXPECT_GT(change.within->low, 0.01) << "the steps of these two do differ";
  EXPECT_NE(compare_medians(before, steady.run(500, 1, random)).verdict(), Verdict::same)
      << "two runs are never known to be the same";
  EXPECT_EQ(compare_means(before, std::vector<double>(15, 2.0)).verdict(), Verdict::undecided);
  EXPECT_EQ(compare_means(before, std::vector<double>(15, 2.0)).evidence, Evidence::too_little);
  EXPECT_EQ(compare_means(before, std::vector<double>(16, 2.0)).verdict(), Verdict::more);
  EXPECT_THROW(compare_means(before, std::vector<double>(16, 0.0)), InternalError);
}

// A machine that is now and then busy with something else for a while tells by its own stretches that its
// runs differ.
TEST(TwoRuns, OnABusyMachineAreSeldomCalledDifferent) {
  const auto busy = [](Random& random) {
    std::vector<double> values(60);
    double load = random.uniform() < 0.5 ? 1.3 : 1;
    for (double& value : values) {
      if (random.uniform() < 0.1) load = random.uniform() < 0.5 ? 1.3 : 1;
      value = load * (1 + kNoise * random.normal());
    }
    return values;
  };
  const int claimed = claims([&](Random& random) {
    const auto before = busy(random);
    return compare_means(before, busy(random));
  });
  EXPECT_LE(claimed, kTrials / 20);
}

// A slow rise of a tenth of a percent, as of a device that warms up, does not hide a change of 20%.
TEST(TwoRuns, ADriftHidesNoMoreThanItsSize) {
  Random random(6);
  const auto drifting = [&](double level) {
    std::vector<double> values(400);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = level * (1 + 0.001 * static_cast<double>(i) / 400 + 0.0002 * random.normal());
    return values;
  };
  EXPECT_EQ(compare_means(drifting(1), drifting(1.2)).verdict(), Verdict::more);
}

TEST(TwoRuns, StallsCountInMeansAndNotInMedians) {
  Random random(7);
  const auto before = kSimulations[0].run(200, 1, random);
  auto after = kSimulations[0].run(200, 0.8, random);
  for (std::size_t i = 0; i < after.size(); i += 5) after[i] += 4;
  EXPECT_EQ(compare_medians(before, after).verdict(), Verdict::less);
  EXPECT_EQ(compare_means(before, after).verdict(), Verdict::more);
}

TEST(Intervals, HoldTheLevelOfARunThatRemembers) {
  const Simulation& remembers = kSimulations[2];
  int mean_held = 0, median_held = 0;
  for (int i = 0; i < kTrials; ++i) {
    Random random(13, static_cast<std::uint64_t>(i));
    const auto values = remembers.run(400, 1, random);
    const ConfidenceInterval of_mean = mean_interval(values), of_median = median_interval(values);
    mean_held += of_mean.low <= 1 && 1 <= of_mean.high;
    median_held += of_median.low <= 1 && 1 <= of_median.high;
  }
  EXPECT_GE(mean_held, kTrials * 95 / 100);
  EXPECT_GE(median_held, kTrials * 95 / 100);
  EXPECT_EQ(mean_interval(std::vector<double>{1, 2, 3}).coverage, 0);
  EXPECT_LT(mean_interval(std::vector<double>(100, 2.0)).high, 2 + 1e-9);
}

// Whole runs, several a side.
std::vector<double> run_means(const Simulation& simulation, std::size_t runs, double level, Random& random) {
  std::vector<double> means(runs);
  for (double& value : means) value = mean(simulation.run(50, level, random));
  return means;
}

TEST(Repeats, AreSeldomCalledDifferentAndAChangeIsFound) {
  for (const Simulation& simulation : kSimulations) {
    for (std::size_t runs : {2u, 3u, 6u}) {
      const auto found = [&](double level) {
        return claims([&](Random& random) {
          const auto before = run_means(simulation, runs, 1, random);
          return compare_repeats(before, run_means(simulation, runs, level, random));
        });
      };
      EXPECT_LE(found(1), kTrials / 20) << simulation.name << ", " << runs << " runs";
      if (runs == 6 && simulation.memory < 0.9) {
        EXPECT_GE(found(kFaster), kTrials * 8 / 10) << simulation.name;
      }
    }
  }
}

TEST(Repeats, OnOneSideAloneLendTheirSpread) {
  const Simulation& spread = kSimulations[4];
  const int claimed = claims([&](Random& random) {
    const auto before = run_means(spread, 1, 1, random);
    return compare_repeats(before, run_means(spread, 4, 1, random));
  });
  EXPECT_LE(claimed, kTrials / 20);
  const std::vector<double> one = {1.0}, two = {2.0};
  EXPECT_EQ(compare_repeats(one, two).evidence, Evidence::too_little);
  EXPECT_EQ(compare_repeats(one, two).verdict(), Verdict::undecided);
  EXPECT_EQ(compare_repeats(one, two).change, 1);
}

// Expected values are by numerical integration of the density of Student's law with 4.974 degrees of freedom.
TEST(Repeats, AreWelchs) {
  const std::vector<double> before = {71.2, 70.8, 71.9, 71.1}, after = {72.0, 72.4, 71.8};
  const Change change = compare_repeats_by_difference(before, after, 0.95);
  EXPECT_NEAR(change.change, 0.8166666666666629, 1e-9);
  EXPECT_EQ(change.evidence, Evidence::repeats);
  EXPECT_NEAR(change.p_value, 0.0383645204220, 1e-9);
  EXPECT_NEAR(change.interval.low, 0.0648303617955, 1e-9);
}

TEST(Repeats, CanBeTheSame) {
  const std::vector<double> before = {1.000, 1.001, 0.999, 1.000}, after = {1.001, 1.000, 1.002, 1.001};
  EXPECT_EQ(compare_repeats(before, after).verdict(), Verdict::same);
  EXPECT_EQ(compare_repeats(before, after).verdict(0.0001), Verdict::undecided);
}

// Steps of a busy machine: most are short, a few a hundred times as long, here and there.
std::vector<double> uneven(std::size_t count, std::uint64_t seed) {
  Random random(seed, 3);
  std::vector<double> values(count);
  for (double& value : values) value = 0.1 * std::exp(2 * random.normal());
  return values;
}

TEST(Intervals, ThatTellNothingAreNotGiven) {
  EXPECT_FALSE(informs({-0.98, 59.5, 0.96}));
  EXPECT_FALSE(informs({-1, 0.5, 0.96}));
  EXPECT_TRUE(informs({-0.3, 0.4, 0.96}));
  EXPECT_TRUE(informs({-0.5, 1, 0.96})) << "from half to double";
  EXPECT_FALSE(informs({-0.51, 1, 0.96}));
  EXPECT_TRUE(informs({2, 30, 0.96})) << "it is faster, however much";
  EXPECT_TRUE(informs({-0.99, -0.5, 0.96}));
  const std::vector<double> before = uneven(20, 1), after = uneven(20, 2);
  for (const Change& change : {compare_means(before, after), compare_medians(before, after)}) {
    EXPECT_EQ(change.evidence, Evidence::two_runs);
    EXPECT_EQ(change.interval.coverage, 0);
    EXPECT_EQ(change.interval.low, change.change);
    EXPECT_FALSE(change.within);
    EXPECT_EQ(change.verdict(), Verdict::undecided);
    EXPECT_FALSE(change.beyond_noise());
  }
  EXPECT_EQ(mean_interval(before).coverage, 0);
  EXPECT_EQ(compare_repeats(std::vector{1.0, 20.0}, std::vector{2.0, 30.0}).interval.coverage, 0);
  // More of the same steps tell more.
  EXPECT_GT(mean_interval(uneven(20'000, 1)).coverage, 0);
  EXPECT_GT(compare_medians(uneven(20'000, 1), uneven(20'000, 2)).interval.coverage, 0);
}

TEST(Laws, AreTheTables) {
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-9);
  EXPECT_NEAR(student_quantile(0.975, 1), 12.706204736432095, 1e-9);
  EXPECT_NEAR(student_quantile(0.975, 4), 2.7764451051977987, 1e-9);
  EXPECT_NEAR(student_quantile(0.025, 30), -2.0422724563012373, 1e-9);
  EXPECT_NEAR(student_quantile(0.99, 2.5), 5.353111173, 1e-6);
  EXPECT_NEAR(student_quantile(0.975, 1e9), 1.959963984540054, 1e-6);
}

}  // namespace
}  // namespace redline
