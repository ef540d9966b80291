#include "bench/throughput.h"

#include <algorithm>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench/chart.h"

namespace redline::bench {
namespace {

// 40 steps that alternate a little around `seconds`.
Throughput measured(std::int64_t batch, double seconds) {
  Throughput result;
  result.model = "resnet50";
  result.dtype = "fp32";
  result.batch = batch;
  result.device = "cpu";
  result.warmup = 2;
  for (int i = 0; i < 40; ++i) result.step_seconds.push_back(seconds * (1 + 0.001 * (i % 5 - 2)));
  return result;
}

nlohmann::ordered_json record(const std::vector<Throughput>& results) {
  nlohmann::ordered_json json = {{"kind", "bench throughput"}, {"results", nlohmann::ordered_json::array()}};
  for (const Throughput& result : results) json["results"].push_back(to_json(result));
  return json;
}

TEST(Throughput, IsTheBatchOverTheMedianStep) {
  Throughput result = measured(64, 0.5);
  result.step_seconds.push_back(30);  // a straggler
  EXPECT_NEAR(result.images_per_second(), 128, 0.2);
  const ConfidenceInterval interval = result.images_per_second_interval();
  EXPECT_LE(interval.low, result.images_per_second());
  EXPECT_GE(interval.high, result.images_per_second());
  EXPECT_LT(interval.high - interval.low, 1);
  EXPECT_EQ(result.images_per_joule(), 0);
  result.telemetry.joules = 41 * 64 / 2.0;
  EXPECT_DOUBLE_EQ(result.images_per_joule(), 2);
}

TEST(Throughput, RefusesAWarmUpThatLeavesNothing) {
  ThroughputOptions options;
  options.warmup = options.stop_iteration;
  EXPECT_THROW(validate(options), UsageError);
  options.warmup = options.stop_iteration - 1;
  EXPECT_NO_THROW(validate(options));
  options.batch_sizes = {8, 0};
  EXPECT_THROW(validate(options), UsageError);
}

TEST(Throughput, WritesEveryColumnWhateverIsKnown) {
  Throughput refused;
  refused.model = "resnet50";
  refused.dtype = "fp32";
  refused.batch = 4096;
  refused.refusal = "too large";
  Throughput known = measured(8, 0.1);
  known.telemetry.power_w = 400;
  known.telemetry.throttle = 4;
  std::istringstream csv(throughput_csv({known, refused}));
  std::string header, first, second;
  std::getline(csv, header);
  std::getline(csv, first);
  std::getline(csv, second);
  EXPECT_EQ(std::ranges::count(first, ','), std::ranges::count(header, ','));
  EXPECT_EQ(std::ranges::count(second, ','), std::ranges::count(header, ','));
  EXPECT_NE(first.find(",400.0,,sw_power_cap,"), std::string::npos) << first;
  EXPECT_TRUE(first.ends_with(",ok"));
  EXPECT_TRUE(second.ends_with(",does not fit"));
  EXPECT_NE(throughput_log(refused).find("not measured: too large"), std::string::npos);
  EXPECT_NE(throughput_log(known).find("iteration 3 "), std::string::npos);
}

TEST(Throughput, TellsAChangeFromNoise) {
  const auto before = record({measured(8, 0.1), measured(16, 0.2), measured(32, 0.4)});
  const std::vector<Throughput> now = {measured(8, 0.1), measured(16, 0.1)};
  const ThroughputComparison comparison = compare_throughput(before, "old.json", now);
  ASSERT_EQ(comparison.batches.size(), 2U);
  EXPECT_FALSE(comparison.batches[0].change.beyond_noise());
  EXPECT_TRUE(comparison.batches[1].change.beyond_noise());
  EXPECT_NEAR(comparison.batches[1].change.change, 1, 0.02);  // twice as fast
  EXPECT_NEAR(comparison.batches[1].before, 80, 0.2);
  EXPECT_EQ(comparison.overall.count, 2U);
}

TEST(Throughput, RefusesRecordsOfOtherThings) {
  EXPECT_THROW(compare_throughput({{"kind", "bench op"}}, "x", {}), DataError);
  EXPECT_THROW(compare_throughput({{"schema", 1}}, "x", {}), DataError);
  auto damaged = record({measured(8, 0.1)});
  damaged["results"][0]["step_seconds"] = {0.1, -1.0};
  EXPECT_THROW(compare_throughput(damaged, "x", {measured(8, 0.1)}), DataError);
  damaged["results"][0]["step_seconds"] = "none";
  EXPECT_THROW(compare_throughput(damaged, "x", {measured(8, 0.1)}), DataError);
}

TEST(Chart, DrawsEveryPoint) {
  const Chart chart{"<speed> & more", "batch", "images/s", {{"a", {{1, 10}, {2, 20}, {4, 40}}}}};
  const std::string svg = svg_chart(chart);
  std::size_t dots = 0;
  for (std::size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1))
    ++dots;
  EXPECT_EQ(dots, 3U);
  EXPECT_NE(svg.find("&lt;speed> &amp; more"), std::string::npos);
  const auto png = png_chart(chart);
  ASSERT_GT(png.size(), 8U);
  EXPECT_EQ(png[1], 'P');
  const std::string text = text_chart(chart, 34);
  EXPECT_NE(text.find("4 ██████████ 40.0"), std::string::npos) << text;
  EXPECT_NE(text.find("1 ██▌ 10.0"), std::string::npos) << text;
}

TEST(Chart, TakesNoOtherEnding) { EXPECT_THROW(check_chart_name("chart.pdf"), UsageError); }

}  // namespace
}  // namespace redline::bench
