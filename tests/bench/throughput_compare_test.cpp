#include "bench/throughput_compare.h"

#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/random.h"
#include "bench/throughput.h"

namespace redline::bench {
namespace {

using Json = nlohmann::ordered_json;

// `speeds` by round.
Throughput measured(std::int64_t batch, const std::vector<double>& speeds,
                    const std::string& device = "cpu") {
  Throughput result;
  result.model = "resnet50";
  result.dtype = "fp32";
  result.batch = batch;
  result.device = device;
  result.classes = 1000;
  for (const double speed : speeds) {
    ThroughputRound round;
    round.step_seconds.assign(20, static_cast<double>(batch) / speed);
    result.rounds.push_back(std::move(round));
  }
  return result;
}

Json record(const std::vector<Throughput>& results) {
  Json json = {{"kind", "bench throughput"}, {"image_size", 224}, {"results", Json::array()}};
  for (const Throughput& result : results) json["results"].push_back(to_json(result));
  return json;
}

TEST(ThroughputCompare, SeesAChangeBeyondTheSpread) {
  const Json before =
      record({measured(8, {80, 80.4, 79.8}), measured(16, {90, 90.2, 89.9}), measured(32, {95})});
  const Json after = record({measured(8, {80.2, 80, 79.9}), measured(16, {120, 119.5, 120.1})});
  const ThroughputComparison comparison = compare_throughput(before, "old.json", after);
  ASSERT_EQ(comparison.rows.size(), 2U);
  EXPECT_FALSE(comparison.rows[0].differs());
  EXPECT_TRUE(comparison.rows[1].differs());
  EXPECT_NEAR(comparison.rows[1].change, 1.0 / 3, 0.01);
  EXPECT_NEAR(comparison.rows[1].before, 90, 0.1);
  ASSERT_TRUE(comparison.overall);
  EXPECT_NEAR(comparison.overall->change, std::sqrt(4.0 / 3) - 1, 0.01);
  EXPECT_TRUE(comparison.differences.empty());
}

TEST(ThroughputCompare, TheChangeIsThatOfTheSpeedsBesideIt) {
  const ThroughputComparison comparison =
      compare_throughput(record({measured(8, {2, 8, 4})}), "old.json", record({measured(8, {1, 27, 8})}));
  const ThroughputChange& row = comparison.rows.at(0);
  EXPECT_NEAR(row.before, 4, 1e-9);
  EXPECT_NEAR(row.after, 6, 1e-9);
  EXPECT_NEAR(row.change, row.after / row.before - 1, 1e-9);
}

TEST(ThroughputCompare, SaysNothingOfSingleRounds) {
  const ThroughputComparison comparison =
      compare_throughput(record({measured(8, {80})}), "old.json", record({measured(8, {160, 161, 162})}));
  EXPECT_EQ(comparison.rows.at(0).interval.coverage, 0);
  EXPECT_FALSE(comparison.rows[0].differs());
  EXPECT_NEAR(comparison.rows[0].change, 1, 0.03);
}

TEST(ThroughputCompare, GivesNoAbsurdInterval) {
  const ThroughputComparison comparison =
      compare_throughput(record({measured(8, {80, 5, 30})}), "old.json", record({measured(8, {3, 90, 12})}));
  EXPECT_EQ(comparison.rows.at(0).interval.coverage, 0);
  EXPECT_FALSE(comparison.rows[0].differs());
  // The rounds alone would tell; not with what two sweeps then differ by.
  const ThroughputComparison wide = compare_throughput(record({measured(8, {80, 50, 65})}), "old.json",
                                                       record({measured(8, {75, 60, 45})}));
  EXPECT_EQ(wide.rows.at(0).interval.coverage, 0);
}

// Sweeps of the same program: rounds that differ, and a machine that is another from sweep to sweep.
TEST(ThroughputCompare, SweepsThatAreAlikeAreSeldomCalledDifferent) {
  struct Noise {
    double round, sweep;
  };
  for (const Noise& noise : {Noise{0.01, 0}, Noise{0.002, 0.01}, Noise{0.01, 0.01}, Noise{0.1, 0.05}}) {
    int claims = 0;
    constexpr int kPairs = 500;
    for (std::uint64_t seed = 0; seed < kPairs; ++seed) {
      Random random(seed, 7);
      const auto sweep = [&] {
        const double machine = noise.sweep * random.normal();
        std::vector<Throughput> results;
        for (const std::int64_t batch : {1, 2, 4, 8, 16, 32}) {
          std::vector<double> speeds;
          for (int i = 0; i < 3; ++i)
            speeds.push_back(100 * std::exp(machine + noise.round * random.normal()));
          results.push_back(measured(batch, speeds));
        }
        return record(results);
      };
      const Json before = sweep();
      const ThroughputComparison comparison = compare_throughput(before, "old.json", sweep());
      bool claim = comparison.overall->differs();
      for (const ThroughputChange& row : comparison.rows) claim = claim || row.differs();
      claims += claim ? 1 : 0;
    }
    EXPECT_LE(claims, kPairs / 20) << noise.round << " " << noise.sweep;
  }
}

TEST(ThroughputCompare, ListsWhatIsUnlikeFirst) {
  Json before = record({measured(8, {80, 80, 81}, "H200")}),
       after = record({measured(8, {80, 80, 81}, "A100")});
  before["warmup"] = 5;
  after["warmup"] = 6;
  EXPECT_TRUE(compare_throughput(before, "old.json", after).unlike());
  after["image_size"] = 96;
  after["results"][0]["classes"] = 10;
  const ThroughputComparison comparison = compare_throughput(before, "old.json", after);
  ASSERT_EQ(comparison.differences.size(), 4U);
  EXPECT_EQ(comparison.differences[0].name, "image_size");
  EXPECT_EQ(comparison.differences[1].name, "device");
  EXPECT_EQ(comparison.differences[2].name, "classes");
  EXPECT_EQ(comparison.differences[3].name, "warmup");
  EXPECT_FALSE(comparison.differences[3].unlike);
  EXPECT_EQ(comparison.differences[0].before, "224");
}

TEST(ThroughputCompare, WhatOneDidNotRecordIsNotADifference) {
  const Json before = record({measured(8, {80, 80, 81})});
  Json after = before;
  after["data"] = "synthetic";
  after["threads"] = 4;
  EXPECT_TRUE(compare_throughput(before, "old.json", after).differences.empty());
  EXPECT_TRUE(compare_throughput(after, "old.json", before).differences.empty());
}

TEST(ThroughputCompare, AllTogetherIsOfTheRoundsThatEverySettingHas) {
  const Json before = record({measured(8, {80, 80, 80}), measured(16, {90, 90}), measured(32, {95, 95, 95})});
  const ThroughputComparison comparison = compare_throughput(before, "old.json", before);
  ASSERT_TRUE(comparison.overall);
  EXPECT_EQ(comparison.overall->rounds_before, 2U);
  EXPECT_EQ(comparison.overall->change, 0);
}

TEST(ThroughputCompare, PowerLimitsAreSettingsOfTheirOwn) {
  Throughput low = measured(8, {70, 70, 71}), high = measured(8, {80, 80, 81});
  low.power_limit = 400;
  high.power_limit = 700;
  const ThroughputComparison comparison = compare_throughput(record({low, high}), "old.json", record({high}));
  ASSERT_EQ(comparison.rows.size(), 1U);
  EXPECT_EQ(comparison.rows[0].setting, "resnet50 fp32 batch 8 at 700 W");
  EXPECT_FALSE(comparison.rows[0].differs());
}

TEST(ThroughputCompare, ReadsRecordsOfTheFirstSchema) {
  Json old = {{"kind", "bench throughput"},
              {"results",
               {{{"model", "resnet50"},
                 {"dtype", "fp32"},
                 {"batch", 8},
                 {"status", "ok"},
                 {"step_seconds", {0.1, 0.1}}},
                {{"model", "resnet50"}, {"dtype", "fp32"}, {"batch", 16}, {"status", "does not fit"}}}}};
  const ThroughputComparison comparison = compare_throughput(old, "x", record({measured(8, {80, 80, 80})}));
  ASSERT_EQ(comparison.rows.size(), 1U);
  EXPECT_NEAR(comparison.rows[0].before, 80, 1e-9);
  EXPECT_FALSE(comparison.rows[0].differs());
}

TEST(ThroughputCompare, RefusesRecordsOfOtherThings) {
  const Json now = record({measured(8, {80})});
  EXPECT_THROW(compare_throughput({{"kind", "bench op"}}, "x", now), DataError);
  Json other = now;
  other["kind"] = "bench op";
  EXPECT_THROW(compare_throughput(other, "x", now), DataError) << "whatever else it holds";
  EXPECT_THROW(compare_throughput({{"schema", 1}}, "x", now), DataError);
  EXPECT_THROW(compare_throughput(Json::array(), "x", now), DataError);
  auto damaged = record({measured(8, {80})});
  damaged["results"][0]["rounds"][0]["images_per_second"] = -1;
  EXPECT_THROW(compare_throughput(damaged, "x", now), DataError);
  damaged["results"][0]["rounds"] = "none";
  EXPECT_THROW(compare_throughput(damaged, "x", now), DataError);
}

}  // namespace
}  // namespace redline::bench
