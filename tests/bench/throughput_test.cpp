#include "bench/throughput.h"
#include "tests/base/csv_row.h"

#include <algorithm>
#include <map>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench/chart.h"

namespace redline::bench {
namespace {

// Rounds of 40 steps that alternate a little around each of `seconds`.
Throughput measured(std::int64_t batch, const std::vector<double>& seconds) {
  Throughput result;
  result.model = "resnet50";
  result.dtype = "fp32";
  result.batch = batch;
  result.device = "cpu";
  result.warmup = 2;
  for (const double level : seconds) {
    ThroughputRound round;
    for (int i = 0; i < 40; ++i) round.step_seconds.push_back(level * (1 + 0.001 * (i % 5 - 2)));
    result.rounds.push_back(std::move(round));
  }
  return result;
}

TEST(Throughput, IsAllImagesOverTheTimeTheyTook) {
  Throughput result = measured(64, {0.5});
  EXPECT_NEAR(result.images_per_second(), 128, 0.01);
  result.rounds[0].gap_seconds =
      20;  // as long as the steps: half of the speed, however good the median step is
  result.rounds[0].data_seconds = 10;
  EXPECT_NEAR(result.images_per_second(), 64, 0.01);
  EXPECT_NEAR(result.data_wait(), 0.25, 1e-9);
  EXPECT_NEAR(median(result.step_seconds()), 0.5, 1e-9);
}

TEST(Throughput, ARoundAddsUpWhatTheStepsTook) {
  ThroughputRound round;
  metrics::Step step;
  step.seconds = 0.5;
  step.gap = {0.1, 0.2, 0.03, 9, 0.04};  // an evaluation is no part of training
  round.add(step);
  step.skipped = true;
  round.add(step);
  EXPECT_EQ(round.step_seconds, (std::vector<double>{0.5, 0.5}));
  EXPECT_NEAR(round.gap_seconds, 2 * 0.37, 1e-12);
  EXPECT_NEAR(round.data_seconds, 2 * 0.1, 1e-12);
  EXPECT_NEAR(round.seconds(), 2 * 0.87, 1e-12);
  EXPECT_EQ(round.skipped, 1);
}

TEST(Throughput, ItsIntervalIsOfTheSpreadBetweenRounds) {
  EXPECT_EQ(measured(64, {0.5}).images_per_second_interval().coverage, 0);
  const Throughput result = measured(64, {0.49, 0.5, 0.51});
  const ConfidenceInterval interval = result.images_per_second_interval();
  // Student's law with two degrees of freedom: 4.30 * 2% / sqrt(3).
  EXPECT_NEAR(interval.high / result.images_per_second() - 1, 0.0509, 0.001);
  EXPECT_NEAR(interval.low / result.images_per_second() - 1, -0.0485, 0.001);
  EXPECT_DOUBLE_EQ(interval.coverage, 0.95);
}

TEST(Throughput, UnevenRoundsHaveNoInterval) {
  const Throughput result = measured(64, {0.1, 5});
  EXPECT_EQ(result.images_per_second_interval().coverage, 0);
  EXPECT_EQ(throughput_log(result).find("95% interval"), std::string::npos);
}

TEST(Throughput, EnergyIsOfAllRounds) {
  Throughput result = measured(64, {0.5, 0.5});
  EXPECT_EQ(result.images_per_joule(), std::nullopt);
  EXPECT_EQ(result.joules_per_step(), std::nullopt);
  result.rounds[0].telemetry.joules = 40 * 30.0;
  result.rounds[1].telemetry.joules = 40 * 34.0;
  EXPECT_DOUBLE_EQ(*result.joules_per_step(), 32);
  EXPECT_DOUBLE_EQ(*result.images_per_joule(), 2);
}

profile::TelemetrySummary telemetry(double power, double limit, double clock, std::uint64_t throttle) {
  profile::TelemetrySummary made;
  made.power_w = power;
  made.power_limit_w = limit;
  made.sm_clock_mhz = clock;
  made.max_sm_clock_mhz = 1980;
  made.throttle = throttle;
  return made;
}

TEST(Throughput, PowerBoundsWhatDrawsItsLimitAtALowerClock) {
  EXPECT_EQ(power_bound({}), std::nullopt);
  EXPECT_EQ(power_bound(telemetry(686, 700, 1680, 4)), true);
  EXPECT_EQ(power_bound(telemetry(400, 700, 1980, 0)), false);
  EXPECT_EQ(power_bound(telemetry(400, 700, 1680, 4)), false);   // capped for a moment
  EXPECT_EQ(power_bound(telemetry(686, 700, 1400, 64)), false);  // hot
  EXPECT_EQ(power_bound(telemetry(686, 700, 1680, 0)), true);    // a driver that does not tell reasons
  EXPECT_EQ(power_bound(telemetry(690, 700, 1975, 4)), false);   // at its limit, yet at its highest clock
}

TEST(Throughput, ItsTelemetryIsOfAllRounds) {
  Throughput result = measured(64, {0.5, 0.5});
  profile::TelemetrySummary &one = result.rounds[0].telemetry, &two = result.rounds[1].telemetry;
  one.samples = 300;
  one.seconds = 30;
  one.cpu = profile::CpuShares{0.2, 0.6, 0.04};
  one.faulted = one.power_capped = 0.4;
  one.other_processes = 2;
  one.throttle = 64;
  one.power_w = 300;  // which the other round does not tell
  two.throttle = 4;
  two.samples = 100;
  two.seconds = 10;
  two.cpu = profile::CpuShares{0.6, 0.2, 0};
  const profile::TelemetrySummary all = result.telemetry();
  EXPECT_DOUBLE_EQ(all.seconds, 40);
  EXPECT_DOUBLE_EQ(all.faulted, 0.3);
  EXPECT_DOUBLE_EQ(all.power_capped, 0.3);
  EXPECT_EQ(all.other_processes, 2U);
  EXPECT_EQ(all.throttle, 64U | 4U);
  EXPECT_EQ(all.power_w, 300);
  ASSERT_TRUE(all.cpu);
  EXPECT_DOUBLE_EQ(all.cpu->own, 0.3);
  EXPECT_DOUBLE_EQ(all.cpu->others, 0.5);
  EXPECT_DOUBLE_EQ(all.cpu->stolen, 0.03);
}

TEST(Throughput, SaysWhatDisturbedIt) {
  Throughput result = measured(64, {0.5});
  EXPECT_TRUE(result.disturbances().empty()) << "nothing is known";
  EXPECT_TRUE(to_json(result)["disturbed"].empty());
  result.rounds[0].telemetry.samples = 400;
  result.rounds[0].telemetry.seconds = 20;
  result.rounds[0].telemetry.cpu = profile::CpuShares{0.3, 0.65, 0};
  EXPECT_EQ(result.disturbances(), std::vector<std::string>{"other processes used 65.0% of the CPU time"});
  EXPECT_EQ(to_json(result)["disturbed"].size(), 1U);
  result.on_gpu = true;
  EXPECT_TRUE(result.disturbances().empty()) << "the GPU computes";
  result.rounds[0].telemetry.faulted = 0.5;
  result.rounds[0].telemetry.throttle = 64;
  EXPECT_EQ(result.disturbances(),
            std::vector<std::string>{"the GPU's clock was held down in 50.0% of the samples (hw_thermal)"});
  result.rounds[0].telemetry = telemetry(686, 700, 1680, 4);
  result.rounds[0].telemetry.seconds = 20;
  EXPECT_TRUE(result.disturbances().empty()) << "a power limit is a bound";
}

TEST(Throughput, RefusesWhatMakesNoSense) {
  ThroughputOptions options;
  options.warmup = options.stop_iteration;
  EXPECT_THROW(validate(options), UsageError);
  options.warmup = options.stop_iteration - 1;
  EXPECT_NO_THROW(validate(options));
  options.batch_sizes = {8, 0};
  EXPECT_THROW(validate(options), UsageError);
  options.batch_sizes = {8, 8};
  EXPECT_THROW(validate(options), UsageError);
  options.batch_sizes = {8};
  options.rounds = 0;
  EXPECT_THROW(validate(options), UsageError);
  options.rounds = 1;
  options.power_limits = {-5};
  EXPECT_THROW(validate(options), UsageError);
}

TEST(Throughput, WritesEveryColumnWhateverIsKnown) {
  Throughput refused = measured(4096, {});
  refused.failure = "too large, \"they\" say";
  refused.fits = false;
  Throughput known = measured(8, {0.1, 0.1});
  known.power_limit = 400;
  for (ThroughputRound& round : known.rounds) {
    round.telemetry.power_w = 400;
    round.telemetry.throttle = 4;
  }
  Throughput broken = measured(16, {0.1});
  broken.failure = "a fault";
  const Throughput waiting = measured(32, {});
  std::istringstream csv(throughput_csv({known, refused, broken, waiting}));
  std::vector<std::string> lines;
  for (std::string line; std::getline(csv, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 4U);
  for (const std::string& line : lines) {
    bool quoted = false;
    std::ptrdiff_t commas = 0;
    for (const char c : line) {
      quoted = quoted != (c == '"');
      commas += c == ',' && !quoted ? 1 : 0;
    }
    EXPECT_EQ(commas, std::ranges::count(lines[0], ',')) << line;
  }
  EXPECT_TRUE(lines[1].starts_with("resnet50,fp32,8,400,2,80,2,80.000,")) << lines[1];
  EXPECT_NE(lines[1].find(",400.0,,sw_power_cap,"), std::string::npos) << lines[1];
  EXPECT_TRUE(lines[1].ends_with(",ok,")) << lines[1];
  EXPECT_TRUE(lines[2].ends_with(",does not fit,\"too large, \"\"they\"\" say\"")) << lines[2];
  EXPECT_TRUE(lines[3].ends_with(",failed,a fault")) << lines[3];
  EXPECT_NE(throughput_log(refused).find("not measured: too large"), std::string::npos);
  EXPECT_NE(throughput_log(broken).find("failed then: a fault"), std::string::npos);
  EXPECT_NE(throughput_log(known).find("iteration 3 "), std::string::npos);
  EXPECT_EQ(to_json(known)["rounds"].size(), 2U);
  EXPECT_EQ(to_json(broken)["reason"], "a fault");
}

// A table's only row.
std::map<std::string, std::string> only_row(const Throughput& result) {
  std::istringstream csv(throughput_csv({result}));
  std::string header, row;
  std::getline(csv, header);
  std::getline(csv, row);
  return csv_row(header, row);
}

TEST(Throughput, WritesNoIntervalOfNoWidth) {
  const Throughput once = measured(64, {0.5});
  EXPECT_EQ(only_row(once).at("images_per_second_low"), "");
  EXPECT_EQ(only_row(once).at("images_per_second_high"), "");
  EXPECT_TRUE(to_json(once)["images_per_second_interval"].is_null());
}

// Rounds of 20 steps of 0.1 s and 0.11 s, one of them five times as long, at 1,000 and 1,200 J.
TEST(Throughput, WritesEachFigureInItsPlace) {
  Throughput result = measured(8, {});
  for (const double level : {0.1, 0.11}) {
    ThroughputRound& round = result.rounds.emplace_back();
    round.step_seconds.assign(20, level);
    round.step_seconds[7] = 5 * level;
    round.telemetry.joules = 1e4 * level;
  }
  const Summary steps = summarize(result.step_seconds());
  ASSERT_GT(steps.mean, 1.1 * steps.median);
  ASSERT_GT(steps.p99, 1.1 * steps.p90);
  auto cells = only_row(result);
  EXPECT_EQ(cells["step_p50_s"], fmt::format("{:.6f}", steps.median));
  EXPECT_EQ(cells["step_p90_s"], fmt::format("{:.6f}", steps.p90));
  EXPECT_EQ(cells["step_p99_s"], fmt::format("{:.6f}", steps.p99));
  EXPECT_EQ(cells["joules_per_step"], "52.5000");
  EXPECT_EQ(cells["images_per_joule"], "0.152");
  const ConfidenceInterval interval = result.images_per_second_interval();
  EXPECT_EQ(cells["images_per_second_low"], fmt::format("{:.3f}", interval.low));
  EXPECT_EQ(cells["images_per_second_high"], fmt::format("{:.3f}", interval.high));
  const auto json = to_json(result);
  EXPECT_EQ(json["step_seconds_p50"], steps.median);
  EXPECT_EQ(json["step_seconds_p90"], steps.p90);
  EXPECT_EQ(json["step_seconds_p99"], steps.p99);
  EXPECT_EQ(json["joules"], 2100);
  EXPECT_EQ(json["joules_per_step"], 52.5);
  EXPECT_NEAR(json["rounds"][0]["images_per_second"].get<double>(), 8 * 20 / 2.4, 1e-9);
  EXPECT_NEAR(json["rounds"][1]["images_per_second"].get<double>(), 8 * 20 / 2.64, 1e-9);
  const std::string log = throughput_log(result);
  EXPECT_NE(log.find("iterations 0.000000 s\niteration 3 "), std::string::npos)
      << "after two of warm-up: " << log;
  EXPECT_EQ(log.find("iteration 23 "), std::string::npos) << log;
}

// 40 steps of 0.1 s with 4 s between them, 1 s of it for want of a batch.
TEST(Throughput, WritesWhatWasMeasured) {
  Throughput result = measured(8, {0.1, 0.1});
  for (ThroughputRound& round : result.rounds) {
    round.step_seconds.assign(40, 0.1);
    round.gap_seconds = 4;
    round.data_seconds = 1;
    round.skipped = 3;
    round.telemetry = telemetry(686, 700, 1680, 4);
  }
  auto cells = only_row(result);
  EXPECT_EQ(cells["images_per_second"], "40.000");
  EXPECT_EQ(cells["step_p50_s"], "0.100000");
  EXPECT_EQ(cells["data_wait_pct"], "12.50");
  EXPECT_EQ(cells["skipped_steps"], "6");
  EXPECT_EQ(cells["power_limit_w"], "700");
  EXPECT_EQ(cells["power_bound"], "yes");
  const auto json = to_json(result);
  EXPECT_NEAR(json["data_wait"].get<double>(), 0.125, 1e-12);
  EXPECT_EQ(json["skipped_steps"], 6);
  EXPECT_EQ(json["power_bound"], true);
  EXPECT_EQ(json["rounds"][1]["gap_seconds"], 4);
  EXPECT_EQ(json["rounds"][1]["data_seconds"], 1);
  const std::string log = throughput_log(result);
  EXPECT_NE(log.find("iteration 3 0.100000 s 80.00 images/s\n"), std::string::npos) << log;
  EXPECT_NE(log.find("round 2 8.000000 s 40.00 images/s\n"), std::string::npos) << log;
  for (ThroughputRound& round : result.rounds) round.telemetry = {};
  EXPECT_TRUE(to_json(result)["power_bound"].is_null()) << "not known is not false";
}

// A sweep of the smallest work there is, on the CPU.
ThroughputOptions tiny() {
  ThroughputOptions options;
  options.config.data.path = "synthetic";
  options.config.model.image_size = 32;
  options.config.model.classes = 10;
  options.config.device.name = "cpu";
  options.models = {"resnet18"};
  options.dtypes = {"fp32"};
  options.batch_sizes = {1, 2};
  options.stop_iteration = 3;
  options.warmup = 1;
  options.rounds = 2;
  return options;
}

struct Watched {
  std::vector<std::string> order;
  ThroughputHooks hooks;
  int measurements = 0;
  Watched() {
    hooks.progress = [this](const Throughput& now, int round, std::int64_t step) {
      if (step == 0) order.push_back(fmt::format("{}:{}", round, now.batch));
      return true;
    };
    hooks.done = [this](const std::vector<Throughput>&, const Throughput&) { ++measurements; };
  }
};

TEST(ThroughputSweep, MeasuresEverySettingInEveryRound) {
  Watched watched;
  ThroughputOptions options = tiny();
  options.batch_sizes = {1, 2, 3, 4};
  const auto results = bench_throughput(options, watched.hooks);
  ASSERT_EQ(results.size(), 4U);
  for (const Throughput& r : results) {
    EXPECT_EQ(r.rounds.size(), 2U);
    EXPECT_EQ(r.rounds[0].step_seconds.size(), 2U);
    EXPECT_GT(r.rounds[0].gap_seconds, 0) << "a host launches steps: the device stands still for a moment";
    EXPECT_GT(r.rounds[0].warmup_seconds, 0);
    EXPECT_GT(r.images_per_second(), 0);
    EXPECT_EQ(r.classes, 10);
  }
  EXPECT_EQ(watched.measurements, 8);
  ASSERT_EQ(watched.order.size(), 8U);
  std::string first, second;  // rounds one after the other, each in its own order: settings are interleaved
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(watched.order[i].starts_with("0:"));
    EXPECT_TRUE(watched.order[4 + i].starts_with("1:"));
    first += watched.order[i].substr(2);
    second += watched.order[4 + i].substr(2);
  }
  EXPECT_NE(first, second);
}

TEST(ThroughputSweep, LeavesTheWarmUpOut) {
  Watched watched;
  ThroughputOptions options = tiny();
  options.batch_sizes = {8};
  options.stop_iteration = 22;
  options.warmup = 20;
  options.rounds = 1;
  const auto results = bench_throughput(options, watched.hooks);
  const ThroughputRound& round = results.at(0).rounds.at(0);
  EXPECT_EQ(round.step_seconds.size(), 2U);
  EXPECT_GT(round.telemetry.seconds, 0);
  EXPECT_LT(round.telemetry.seconds, round.warmup_seconds + round.seconds()) << "clocks and power too";
}

TEST(ThroughputSweep, CannotDiverge) {
  Watched watched;
  ThroughputOptions options = tiny();
  options.config.optimizer.lr = 1e30;
  options.batch_sizes = {2};
  options.rounds = 1;
  options.stop_iteration = 4;
  const auto results = bench_throughput(options, watched.hooks);
  ASSERT_EQ(results.at(0).rounds.size(), 1U) << results[0].failure;
  EXPECT_EQ(results[0].rounds[0].skipped, 0);
}

TEST(ThroughputSweep, GoesOnAfterWhatFails) {
  Watched watched;
  ThroughputOptions options = tiny();
  options.batch_sizes = {1'000'000, 1};
  options.dtypes = {"auto"};
  const auto results = bench_throughput(options, watched.hooks);
  EXPECT_EQ(results[0].dtype, results[1].dtype) << "its row is among those of the type that was chosen";
  EXPECT_EQ(results[0].device, results[1].device);
  EXPECT_STREQ(results[0].status(), "does not fit");
  EXPECT_FALSE(results[0].failure.empty());
  EXPECT_EQ(results[1].rounds.size(), 2U);
  EXPECT_EQ(watched.measurements, 3);  // it is not tried again
  options.batch_sizes = {1};
  options.config.data.path = "/nowhere/to/be/found";
  const auto missing = bench_throughput(options, watched.hooks);
  EXPECT_STREQ(missing[0].status(), "failed");
  EXPECT_NE(missing[0].failure_code, ExitCode::ok);
}

TEST(ThroughputSweep, GivesWhatWasMeasuredWhenStopped) {
  Watched watched;
  watched.hooks.progress = [&](const Throughput&, int, std::int64_t) { return watched.measurements == 0; };
  const auto results = bench_throughput(tiny(), watched.hooks);
  EXPECT_EQ(results[0].rounds.size() + results[1].rounds.size(), 1U);
}

TEST(ThroughputSweep, SetsThePowerLimitBeforeEachMeasurement) {
  Watched watched;
  ThroughputOptions options = tiny();
  options.batch_sizes = {1};
  options.power_limits = {400, 500};
  options.rounds = 1;
  std::vector<int> limits;
  watched.hooks.set_power_limit = [&](int watts) { limits.push_back(watts); };
  const auto results = bench_throughput(options, watched.hooks);
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].power_limit, 400);
  EXPECT_EQ(results[1].power_limit, 500);
  std::ranges::sort(limits);
  EXPECT_EQ(limits, (std::vector<int>{400, 500}));
  watched.hooks.set_power_limit = [](int) { throw UnavailableError("no"); };
  EXPECT_THROW(bench_throughput(options, watched.hooks), UnavailableError);
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
