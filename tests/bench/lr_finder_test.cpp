#include "bench/lr_finder.h"

#include <cmath>
#include <functional>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/random.h"

namespace redline::bench {
namespace {

// Losses by the logarithm of the rate, from 1e-6 on.
LrSweep swept(const std::function<double(double exponent)>& loss, int steps = 200, double noise = 0,
              double to = 1, std::uint64_t seed = 0) {
  Random random(seed, 0);
  LrSweep sweep;
  for (int i = 0; i < steps; ++i) {
    const double exponent = -6 + (to + 6) * i / (steps - 1);
    sweep.points.push_back({std::pow(10.0, exponent), loss(exponent) + noise * random.normal()});
  }
  return sweep;
}

// A plateau, a fall around `middle`, and, from `turn` on, a rise.
std::function<double(double)> falling(double middle, double turn = 9) {
  return [=](double x) {
    return 2 + std::tanh(2 * (middle - x)) + (x > turn ? 3 * (x - turn) * (x - turn) : 0);
  };
}

TEST(LrFinder, SuggestsWhereTheLossFallsFastest) {
  const LrSuggestion found = suggest(swept(falling(-2, -0.5), 200, 0.1));
  ASSERT_TRUE(found.rate) << found.why_not;
  EXPECT_NEAR(std::log10(*found.rate), -2, 0.3);  // half of the window that lines are fitted to
  EXPECT_NEAR(std::log10(*found.lowest), -0.6, 0.4);
  EXPECT_TRUE(found.why_not.empty());
}

TEST(LrFinder, TellsAFallFromARiseOnTheOtherSideOfTheMinimum) {
  // It falls twice, the second time steeper, but after the loss has been lower.
  const LrSuggestion found = suggest(swept([](double x) {
    return 3 + std::tanh(2 * (-4 - x)) + 4 * std::exp(-8 * (x + 1) * (x + 1)) + 0.5 * std::tanh(4 * (x + 1));
  }));
  ASSERT_TRUE(found.rate) << found.why_not;
  EXPECT_NEAR(std::log10(*found.rate), -4, 0.3);
}

TEST(LrFinder, SuggestsNothingForNoise) {
  int claims = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed)
    claims += suggest(swept([](double) { return 2.3; }, 100, 0.3, 1, seed)).rate ? 1 : 0;
  EXPECT_LE(claims, 20);  // one in a hundred, with room for the seeds
  const LrSuggestion found = suggest(swept([](double) { return 2.3; }, 100, 0.3));
  EXPECT_FALSE(found.rate);
  EXPECT_FALSE(found.lowest);
  EXPECT_NE(found.why_not.find("noise"), std::string::npos) << found.why_not;
}

TEST(LrFinder, SuggestsNothingForALossThatNeverChanges) {
  EXPECT_FALSE(suggest(swept([](double) { return 2.3; })).rate);
}

TEST(LrFinder, SuggestsNothingForALossThatOnlyRises) {
  LrSweep sweep = swept([](double x) { return 8 + x; });
  sweep.diverged = true;
  const LrSuggestion found = suggest(sweep);
  EXPECT_FALSE(found.rate);
  EXPECT_NE(found.why_not.find("lower --from"), std::string::npos) << found.why_not;
  sweep.points.resize(4);
  EXPECT_FALSE(suggest(sweep).rate);
  sweep.points.clear();
  EXPECT_FALSE(suggest(sweep).rate);
}

TEST(LrFinder, SuggestsNothingWhereAnEndOfTheSweepCutsTheFall) {
  const LrSuggestion high = suggest(swept(falling(2)));
  EXPECT_FALSE(high.rate);
  EXPECT_NE(high.why_not.find("raise --to"), std::string::npos) << high.why_not;
  // It is steepest within the sweep, but where it turns is not known.
  EXPECT_FALSE(suggest(swept([](double x) { return 3 + std::tanh(3 * (-3 - x)) - 0.1 * x; })).rate);
  const LrSuggestion low = suggest(swept(falling(-6.5)));
  EXPECT_FALSE(low.rate);
  EXPECT_NE(low.why_not.find("lower --from"), std::string::npos) << low.why_not;
}

TEST(LrFinder, FitsLinesToNeighbours) {
  const LrSweep sweep = swept([](double x) { return 10 - 0.5 * x; }, 50);
  for (const LrFit& line : fit(sweep.points)) EXPECT_NEAR(line.slope, -0.5, 1e-9);
  const std::vector<LrFit> fits = fit(sweep.points);
  for (std::size_t i = 0; i < fits.size(); ++i) EXPECT_NEAR(fits[i].smoothed, sweep.points[i].loss, 1e-9);
}

TEST(LrFinder, WritesEveryStep) {
  const LrSweep sweep = swept(falling(-2, -0.5), 60, 0.01);
  const LrSuggestion found = suggest(sweep);
  const auto json = lr_json(sweep, found);
  EXPECT_EQ(json["points"].size(), 60U);
  EXPECT_EQ(json["suggested_rate"].get<double>(), *found.rate);
  EXPECT_TRUE(lr_json(sweep, {})["suggested_rate"].is_null());
  std::istringstream csv(lr_csv(sweep));
  int lines = 0;
  for (std::string line; std::getline(csv, line);) ++lines;
  EXPECT_EQ(lines, 61);
  const Chart chart = lr_chart(sweep, found);
  EXPECT_EQ(chart.mark, *found.rate);
  EXPECT_NE(svg_chart(chart).find("falling fastest at 0.0"), std::string::npos);
}

TEST(LrFinder, RefusesRangesThatNoSweepCanHave) {
  LrOptions options;
  options.config.data.path = "synthetic";
  validate(options);
  options.from = 0;
  EXPECT_THROW(validate(options), UsageError);
  options = {options.config, 1, 5, 100};
  EXPECT_THROW(validate(options), UsageError);
  options = {options.config, 1e-6, 1, 19};
  EXPECT_THROW(validate(options), UsageError);
}

}  // namespace
}  // namespace redline::bench
