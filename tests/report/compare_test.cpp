// Thinning, runs beside each other, the terminal and the tables.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../base/temporary_folder.h"
#include "base/atomic_file.h"
#include "base/random.h"
#include "made_run.h"
#include "report/comparison.h"
#include "report/csv.h"
#include "report/document.h"
#include "report/export.h"
#include "report/terminal.h"
#include "report/thin.h"
#include "run_folder.h"

namespace redline::report {
namespace {

TEST(Thin, NoSpikeIsLost) {
  std::vector<double> x(10'000), y(10'000, 1.0);
  std::iota(x.begin(), x.end(), 0.0);
  y[4321] = 99;
  y[4322] = -99;
  y[7000] = NAN;
  const Series thinned = thin(x, y, 200);
  EXPECT_LE(thinned.x.size(), 310u);
  EXPECT_TRUE(std::ranges::is_sorted(thinned.x));
  EXPECT_EQ(thinned.x.front(), 0);
  EXPECT_EQ(thinned.x.back(), 9999);
  EXPECT_EQ(*std::ranges::max_element(thinned.y), 99);
  EXPECT_EQ(*std::ranges::min_element(thinned.y), -99);
  EXPECT_EQ(std::ranges::count_if(thinned.y, [](double value) { return std::isnan(value); }), 1);
}

TEST(Thin, FewPointsStayAsTheyAre) {
  const std::vector<double> x = {1, 2, 3}, y = {5, INFINITY, 7};
  const Series thinned = thin(x, y, 10);
  EXPECT_EQ(thinned.x, x);
  EXPECT_TRUE(std::isnan(thinned.y[1]));
  EXPECT_EQ(thin({}, {}, 10).x.size(), 0u);
}

TEST(Thin, AveragesAndBins) {
  const std::vector<double> x = {0, 1, 2, 3}, y = {1, 3, NAN, 7};
  const Series mean = average(x, y, 2);
  EXPECT_EQ(mean.x, (std::vector<double>{0.5, 2.5}));
  EXPECT_EQ(mean.y, (std::vector<double>{2, 7}));
  const Bins bins = count_in_bins(std::vector<double>{0, 1, 1.5, 2, 9}, 0, 2, 2);
  EXPECT_EQ(bins.counts, (std::vector<std::size_t>{1, 3}));
  EXPECT_EQ(bins.above, 1u);
}

class TwoRuns : public ::testing::Test {
 protected:
  TwoRuns() {
    write_run(folder_.path() / "slow", 60, 0.50);
    write_run(folder_.path() / "fast", 60, 0.45);
    write_text(folder_.path() / "fast" / "config.toml", kConfig + "note = \"faster\"\n");
    for (const char* name : {"slow", "fast"}) runs_.push_back(read_run(folder_.path() / name));
    for (const report::Run& run : runs_) pointers_.push_back(&run);
  }
  const TemporaryFolder folder_;
  std::vector<report::Run> runs_;
  std::vector<const report::Run*> pointers_;
};

std::vector<RunSummary> summaries_of(const std::vector<const report::Run*>& runs) {
  std::vector<RunSummary> summaries;
  for (const report::Run* run : runs) summaries.push_back(summarize(*run));
  return summaries;
}

const Comparison& row_of(const Compared& compared, const std::string& name) {
  const auto found = std::ranges::find(compared.rows, name, &Comparison::name);
  if (found == compared.rows.end()) throw std::runtime_error("no row " + name);
  return *found;
}

TEST_F(TwoRuns, SpeakOfTheseTwo) {
  const Compared compared = compare(pointers_, summaries_of(pointers_));
  const Comparison &speed = compared.rows[0], &step = row_of(compared, "median step");
  EXPECT_EQ(speed.name, "images per second");
  ASSERT_TRUE(speed.changes[1]);
  EXPECT_NEAR(1 + speed.changes[1]->change, *speed.values[1] / *speed.values[0], 1e-9);
  EXPECT_EQ(speed.changes[1]->evidence, Evidence::two_runs);
  EXPECT_EQ(speed.verdicts[1], "faster");
  ASSERT_TRUE(speed.changes[1]->within && step.changes[1]->within);
  for (const Comparison* row : {&speed, &step}) {
    EXPECT_LT(row->changes[1]->within->low, row->changes[1]->change) << row->name;
    EXPECT_GT(row->changes[1]->within->high, row->changes[1]->change) << row->name;
  }
  EXPECT_NEAR(step.changes[1]->change, 0.45 / 0.5 - 1, 1e-9);
  EXPECT_EQ(step.verdicts[1], "faster");
  ASSERT_EQ(compared.advice[1].size(), 2u);
  EXPECT_NE(compared.advice[1][0].find("redline bench ab"), std::string::npos);
  EXPECT_EQ(row_of(compared, "99th percentile step").verdicts[1], "") << "one value a side is not judged";
}

TEST_F(TwoRuns, OfOneSeedEachHaveNoBetterAccuracy) {
  runs_[1].evaluations[0].top1 = 0.9;  // of 1000 images, against 0.6
  const Compared compared = compare(pointers_, summaries_of(pointers_));
  const Comparison& accuracy = row_of(compared, "best top-1");
  EXPECT_EQ(accuracy.verdicts[1], "undecided");
  EXPECT_EQ(accuracy.changes[1]->evidence, Evidence::two_runs);
  EXPECT_NEAR(accuracy.changes[1]->change, 0.3, 1e-9) << "a difference in parts of one";
  ASSERT_TRUE(accuracy.changes[1]->within);
  EXPECT_NEAR(accuracy.changes[1]->within->high - 0.3, 2.0537489 * std::sqrt((0.24 + 0.09) / 1000), 1e-6);
  EXPECT_NE(compared.advice[1][1].find("--seed"), std::string::npos);
}

TEST_F(TwoRuns, OfSeveralRanksAreComparedByRank) {
  runs_[1].info.ranks = 2;
  const Compared compared = compare(pointers_, summaries_of(pointers_));
  EXPECT_NEAR(*row_of(compared, "images per second a rank").values[1], *compared.rows[0].values[1] / 2, 1e-9);
}

TEST_F(TwoRuns, ThatDidOtherWorkAreNotJudged) {
  runs_[1].info.image_size = 96;
  const Compared compared = compare(pointers_, summaries_of(pointers_));
  EXPECT_EQ(compared.rows[0].verdicts[1], "unlike");
  EXPECT_EQ(compared.unlike[1],
            std::vector<std::string>{"model.image_size 96 against 64: speed is not comparable"});
  EXPECT_EQ(row_of(compared, "best top-1").verdicts[1], "undecided") << "the same questions were asked";
  EXPECT_EQ(compared.differences[0].name, "model.image_size");
  EXPECT_EQ(compare(pointers_, summaries_of(pointers_), true).rows[0].verdicts[1], "faster");
  const auto json = nlohmann::json::parse(document(pointers_, Detail::full));
  EXPECT_EQ(json["comparison"][0]["changes"][1]["verdict"], "unlike");
  EXPECT_EQ(json["comparison"][0]["changes"][1]["beyond_noise"], false);
  EXPECT_EQ(json["groups"][1]["unlike"].size(), 1u);
  EXPECT_EQ(json["differences"][0]["unlike_speed"], true);
  EXPECT_NE(terminal_text(pointers_).find("not comparable"), std::string::npos);
}

// What was set differently, and whether speed and accuracy can still be compared.
TEST_F(TwoRuns, AreUnlikeInWhatTheirSettingsChange) {
  struct Case {
    const char* name;
    std::function<void(report::Run&)> change;
    bool speed, step, accuracy, loss;  // comparable
  };
  const auto set = [](const char* name, const char* value) {
    return [=](report::Run& run) {
      std::ranges::find(run.options, name, &Pairs::value_type::first)->second = value;
    };
  };
  const Case cases[] = {
      {"model.name", [](auto& run) { run.info.model = "resnet50"; }, false, false, true, true},
      {"model.image_size", [](auto& run) { run.info.image_size = 96; }, false, false, true, true},
      {"model.classes", [](auto& run) { run.info.classes = 1000; }, false, false, false, false},
      {"data", [](auto& run) { run.info.data = "leaves"; }, false, false, false, false},
      {"validation images", [](auto& run) { run.info.val_samples = 99; }, true, true, false, true},
      {"schedule.train_sizes", set("schedule.train_sizes", "64:1"), false, false, true, true},
      {"optimizer.batch_size", [](auto& run) { run.info.batch_size = 16; }, true, false, true, true},
      {"optimizer.accumulate", [](auto& run) { run.info.accumulate = 4; }, true, false, true, true},
      {"ranks", [](auto& run) { run.info.ranks = 2; }, true, true, true, true},
      {"device.dtype", [](auto& run) { run.info.dtype = "bf16"; }, true, true, true, true},
      {"optimizer.label_smoothing", set("optimizer.label_smoothing", "0.1"), true, true, true, false},
      {"augment.mixup_alpha", set("augment.mixup_alpha", "0.2"), true, true, true, false},
      {"augment.cutmix_alpha", set("augment.cutmix_alpha", "1"), true, true, true, false}};
  for (report::Run& run : runs_) {
    for (const char* name : {"optimizer.label_smoothing", "augment.mixup_alpha", "augment.cutmix_alpha"})
      run.options.emplace_back(name, "0");
    run.options.emplace_back("schedule.train_sizes", "32:1");
  }
  const report::Run alike = runs_[1];
  for (const Case& one : cases) {
    runs_[1] = alike;
    one.change(runs_[1]);
    const Compared compared = compare(pointers_, summaries_of(pointers_));
    EXPECT_EQ(compared.rows[0].verdicts[1], one.speed ? "faster" : "unlike") << one.name;
    EXPECT_EQ(row_of(compared, "median step").verdicts[1], one.step ? "faster" : "unlike") << one.name;
    EXPECT_EQ(row_of(compared, "99th percentile step").verdicts[1], one.step ? "" : "unlike") << one.name;
    EXPECT_EQ(row_of(compared, "duration").verdicts[1], one.speed ? "" : "unlike") << one.name;
    EXPECT_EQ(row_of(compared, "best top-1").verdicts[1], one.accuracy ? "undecided" : "unlike") << one.name;
    EXPECT_EQ(row_of(compared, "final training loss").verdicts[1], one.loss ? "" : "unlike") << one.name;
    const auto row = std::ranges::find(compared.differences, one.name, &Difference::name);
    ASSERT_NE(row, compared.differences.end()) << one.name;
    EXPECT_NE(row->values[0], row->values[1]) << one.name;
  }
  runs_[1] = alike;
  runs_[1].options.pop_back();  // it did not record it
  EXPECT_EQ(compare(pointers_, summaries_of(pointers_)).rows[0].verdicts[1], "faster");
}

TEST_F(TwoRuns, OfOtherNumbersOfImagesDidOtherWork) {
  runs_[1].info.train_samples += 100;
  EXPECT_EQ(compare(pointers_, summaries_of(pointers_)).rows[0].verdicts[1], "unlike") << "other data";
  // As many images are generated as the steps of an epoch need: another batch size has another number.
  for (report::Run& run : runs_) run.info.data = "synthetic";
  runs_[1].info.batch_size *= 2;
  const Compared compared = compare(pointers_, summaries_of(pointers_));
  EXPECT_EQ(compared.rows[0].verdicts[1], "faster");
  EXPECT_EQ(row_of(compared, "median step").verdicts[1], "unlike") << "a step has twice the work";
  EXPECT_EQ(
      compared.unlike[1],
      std::vector<std::string>{"optimizer.batch_size 16 against 8: the time of a step is not comparable"});
  EXPECT_EQ(compared.differences.at(0).name, "optimizer.batch_size") << "and that is said";
}

TEST_F(TwoRuns, OfOtherDataHaveNoComparableAccuracy) {
  runs_[1].info.classes = 7;
  EXPECT_EQ(row_of(compare(pointers_, summaries_of(pointers_)), "best top-1").verdicts[1], "unlike");
  runs_[1].info.classes = 10;
  runs_[1].info.data = "/elsewhere/flowers";
  EXPECT_TRUE(compare(pointers_, summaries_of(pointers_)).unlike[1].empty())
      << "where data lies is no matter";
  runs_[1].info.dtype = "bf16";
  EXPECT_EQ(compare(pointers_, summaries_of(pointers_)).rows[0].verdicts[1], "faster")
      << "a type is what people compare";
}

// Figures that differ by which of them is taken: a slow step in ten, an accuracy that falls in the end.
TEST(Comparison, EveryRowHasItsOwnFigure) {
  std::vector<report::Run> runs;
  for (const double level : {0.5, 0.4}) {
    std::vector<double> seconds(41, level);
    for (std::size_t i = 5; i < seconds.size(); i += 10) seconds[i] = level == 0.5 ? 2 : 9;
    seconds[20] = 20;
    runs.push_back(made_run(level == 0.5 ? "a" : "b", seconds));
    report::Run& run = runs.back();
    run.steps.loss.assign(41, level);
    for (const double top1 : {0.8, 0.7}) run.evaluations.push_back({41, 1, "model", 1, top1, 0.9, 100, 1, 9});
    Telemetry telemetry;
    telemetry.add_line("seconds,gpu_power_mw,gpu_temperature_c,gpu_memory_used_bytes,gpu_sm_clock_mhz");
    for (int i = 0; i <= 100; ++i) telemetry.add_line(fmt::format("{},200000,{},{},1500", i, 50 + i % 20, i));
    run.telemetry.push_back(telemetry);
  }
  const std::vector<const report::Run*> pointers = {&runs[0], &runs[1]};
  const std::vector<RunSummary> summaries = summaries_of(pointers);
  const Compared compared = compare(pointers, summaries);
  const auto value = [&](const char* name) { return row_of(compared, name).values[0].value_or(-1); };
  EXPECT_NEAR(value("images per second"), 40 * 64 / (35 * 0.5 + 4 * 2 + 20), 1e-9);
  EXPECT_EQ(value("median step"), 0.5);
  EXPECT_EQ(value("99th percentile step"), summaries[0].step_seconds->p99);
  EXPECT_LT(value("99th percentile step"), 20) << "not the slowest";
  EXPECT_EQ(value("waiting for data"), 0);
  EXPECT_EQ(value("best top-1"), 0.8);
  EXPECT_EQ(value("final training loss"), 0.5);
  EXPECT_NEAR(value("mean power"), 200, 1e-6);
  EXPECT_NEAR(value("energy"), 200 * 100, 1e-3);
  EXPECT_NEAR(value("energy a step"), *summaries[0].energy->joules_per_step, 1e-9);
  EXPECT_NEAR(value("images per joule"), *summaries[0].energy->images_per_joule, 1e-9);
  EXPECT_EQ(value("median clock"), 1500);
  EXPECT_EQ(value("highest temperature"), 69);
  EXPECT_EQ(value("most memory"), 100);
  EXPECT_NEAR(value("duration"), 36 * 0.5 + 4 * 2 + 20, 1e-9);
  EXPECT_NEAR(row_of(compared, "median step").changes[1]->change, 0.4 / 0.5 - 1, 1e-9)
      << "of the medians: the mean step got longer";
}

// 6,400 images that took 3:28, most of it standing still, against 42.7 images a second without a stall.
TEST(Speed, CountsStalls) {
  std::vector<double> gaps(101, 0);
  for (std::size_t i = 1; i < gaps.size(); i += 4) gaps[i] = 4.85;
  const report::Run stalled = made_run("stalled", std::vector<double>(101, 0.864), gaps);
  const report::Run steady = made_run("steady", std::vector<double>(101, 1.5));
  const Compared compared = compare({&stalled, &steady}, summaries_of({&stalled, &steady}));
  EXPECT_NEAR(*compared.rows[0].values[0], 6400 / (100 * 0.864 + 25 * 4.85), 1e-6);
  EXPECT_NEAR(*summarize(stalled).images_per_second_at_median, 74.07, 0.01);
  EXPECT_EQ(compared.rows[0].verdicts[1], "faster");
  EXPECT_EQ(row_of(compared, "median step").verdicts[1], "slower");
  EXPECT_NEAR(*summarize(stalled).data_wait, 25 * 4.85 / (100 * 0.864 + 25 * 4.85), 1e-6);
}

TEST(Speed, LeavesEvaluationsOut) {
  report::Run run = made_run("run", std::vector<double>(20, 0.5), {0, 0, 0, 0, 2.5});
  run.steps.gap_seconds[10] = run.steps.evaluation_seconds[10] = 100;
  EXPECT_NEAR(*summarize(run).images_per_second, 19 * 64 / (19 * 0.5 + 2.5), 1e-9);
  EXPECT_NEAR(*summarize(run).data_wait, 2.5 / 12, 1e-9) << "of the training time after the warm-up";
}

TEST(Speed, ItsIntervalHoldsIt) {
  std::vector<double> seconds(100);
  for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i] = 0.5 * (1 + 0.01 * static_cast<double>(i % 3));
  report::Run run = made_run("run", seconds);
  const auto check = [&] {
    const RunSummary summary = summarize(run);
    EXPECT_LT(summary.images_per_second_interval->low, *summary.images_per_second);
    EXPECT_GT(summary.images_per_second_interval->high, *summary.images_per_second);
  };
  check();
  const double before = *summarize(run).images_per_second;
  run.steps.samples[50] = 0;  // a step without images counts neither way
  check();
  EXPECT_NEAR(*summarize(run).images_per_second, before, 0.05) << "by one step in a hundred it would be 1.3";
}

// Equal runs whose steps resemble their neighbours, each a little off as a whole.
TEST(Speed, OfEqualRunsIsSeldomCalledDifferent) {
  int claims = 0;
  for (std::uint64_t trial = 0; trial < 1000; ++trial) {
    Random random(21, trial);
    const auto simulate = [&] {
      const double level = 0.1 * (1 + 0.01 * random.normal());
      std::vector<double> seconds(100);
      double state = random.normal();
      for (double& value : seconds) {
        value = level * (1 + 0.02 * state);
        state = 0.9 * state + std::sqrt(1 - 0.81) * random.normal();
      }
      return seconds;
    };
    const report::Run before = made_run("before", simulate()), after = made_run("after", simulate());
    const Compared compared = compare({&before, &after}, summaries_of({&before, &after}));
    const std::string& verdict = compared.rows[0].verdicts[1];
    claims += verdict == "faster" || verdict == "slower";
  }
  EXPECT_LE(claims, 50);
}

// Short runs on a machine that does other things too.
TEST(Speed, OfShortUnevenRunsIsNotGivenAnAbsurdInterval) {
  Random random(5, 1);
  const auto uneven = [&](const char* name) {
    std::vector<double> seconds(20);
    for (double& value : seconds) value = 0.1 * std::exp(2 * random.normal());
    return made_run(name, seconds);
  };
  const report::Run before = uneven("before"), after = uneven("after");
  const Compared compared = compare({&before, &after}, summaries_of({&before, &after}));
  EXPECT_EQ(compared.rows[0].verdicts[1], "undecided");
  ASSERT_EQ(compared.advice[1].size(), 1u);
  EXPECT_TRUE(
      compared.advice[1][0].starts_with("too few steps, or too uneven, to compare speeds: use longer"))
      << compared.advice[1][0];
  EXPECT_NE(compared.advice[1][0].find("redline bench ab"), std::string::npos);
  const std::string text = terminal_text({&before, &after});
  EXPECT_NE(text.find("%  (too few or too uneven steps to judge)\n"), std::string::npos) << text;
  EXPECT_EQ(text.find(" to +"), std::string::npos) << "an interval: " << text;
  EXPECT_EQ(text.find("in these two runs"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(document({&before, &after}, Detail::full));
  EXPECT_EQ(json["comparison"][0]["changes"][1]["interval"]["coverage"], 0);
}

TEST(Speed, OfFewStepsIsNotJudged) {
  const report::Run before = made_run("before", std::vector<double>(12, 0.5)),
                    after = made_run("after", std::vector<double>(12, 0.4));
  const std::string text = terminal_text({&before, &after});
  EXPECT_NE(text.find("+25.00%  (too few steps to judge)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("128.0 images/s, 128.0 at"), std::string::npos) << "no interval: " << text;
  EXPECT_FALSE(summarize(before).images_per_second_interval) << "nor in tables, as one of no width";
}

class Repeats : public ::testing::Test {
 protected:
  // Three runs a side that differ by seed; those of the second are of another type.
  Repeats() {
    for (int i = 0; i < 6; ++i) {
      const double level = (i < 3 ? 0.5 : 0.4) * (1 + 0.005 * (i % 3));
      runs_.push_back(made_run(fmt::format("run{}", i), std::vector<double>(30, level)));
      runs_.back().options = {{"run.seed", std::to_string(i)}, {"device.dtype", i < 3 ? "fp32" : "bf16"}};
      runs_.back().info.dtype = i < 3 ? "fp32" : "bf16";
      runs_.back().end = metrics::End{};
      runs_.back().end->reason = "finished";
      runs_.back().evaluations.push_back({30, 1, "model", 1, 0.7 + 0.0005 * i, 0.9, 1000, 1, 9});
    }
    for (const report::Run& run : runs_) pointers_.push_back(&run);
  }
  std::vector<report::Run> runs_;
  std::vector<const report::Run*> pointers_;
};

TEST_F(Repeats, AreGroupedAndTheirSpreadIsUsed) {
  const Compared compared = compare(pointers_, summaries_of(pointers_));
  ASSERT_EQ(compared.groups.size(), 2u);
  EXPECT_EQ(compared.groups[0].name, "run0 and 2 repeats");
  EXPECT_EQ(compared.groups[1].runs, (std::vector<std::size_t>{3, 4, 5}));
  EXPECT_NEAR(row_of(compared, "best top-1").changes[1]->change, 0.0015, 1e-9)
      << "in parts of one, not of 0.7";
  const Change& change = *compared.rows[0].changes[1];
  EXPECT_EQ(change.evidence, Evidence::repeats);
  EXPECT_NEAR(change.change, 0.25, 1e-9);
  EXPECT_NEAR(change.spread, 0.005, 0.0001);
  EXPECT_EQ(compared.rows[0].verdicts[1], "faster");
  EXPECT_EQ(row_of(compared, "best top-1").verdicts[1], "same") << "0.15 points, and seeds differ by 0.05";
  const auto json = nlohmann::json::parse(document(pointers_, Detail::full));
  EXPECT_TRUE(json["comparison"][0]["changes"][2].is_null()) << "of the first group";
  EXPECT_EQ(json["comparison"][0]["changes"][5]["evidence"], "repeats");
  EXPECT_EQ(json["groups"][1]["runs"], (std::vector<int>{3, 4, 5}));
  EXPECT_NE(terminal_text(pointers_).find("run3 and 2 repeats against run0 and 2 repeats:"),
            std::string::npos);
}

TEST_F(Repeats, NeedNoOtherProofOnceDecided) {
  EXPECT_TRUE(compare(pointers_, summaries_of(pointers_)).advice[1].empty());
  for (std::size_t i = 3; i < 6; ++i) runs_[i].evaluations[0].top1 += 0.1;
  EXPECT_EQ(row_of(compare(pointers_, summaries_of(pointers_)), "best top-1").verdicts[1], "better");
  for (std::size_t i = 3; i < 6; ++i) runs_[i].evaluations[0].top1 -= 0.2;
  EXPECT_EQ(row_of(compare(pointers_, summaries_of(pointers_)), "best top-1").verdicts[1], "worse");
}

TEST_F(Repeats, ThatVaryTooMuchAreToBeRepeatedMore) {
  for (std::size_t i = 0; i < 6; ++i) {
    for (double& seconds : runs_[i].steps.seconds) seconds *= 1 + 0.3 * static_cast<double>(i % 3);
    runs_[i].evaluations[0].top1 += 0.05 * static_cast<double>(i % 3);
  }
  const Compared compared = compare(pointers_, summaries_of(pointers_));
  ASSERT_EQ(compared.advice[1].size(), 2u);
  EXPECT_NE(compared.advice[1][0].find("more repeats narrow the interval"), std::string::npos);
  EXPECT_NE(compared.advice[1][1].find("more seeds narrow the interval"), std::string::npos);
}

TEST_F(Repeats, OfWhichOneDidNotFinishHaveNoComparableAccuracy) {
  runs_[4].end->reason = "interrupted";
  EXPECT_EQ(row_of(compare(pointers_, summaries_of(pointers_)), "best top-1").verdicts[1], "unlike");
}

TEST_F(Repeats, AreTheSameAccuracyWithinHalfAPoint) {
  for (std::size_t i = 0; i < 6; ++i)  // seeds differ by 0.2 points, so the interval reaches 0.5 further
    runs_[i].evaluations[0].top1 = 0.7 + 0.002 * static_cast<double>(i % 3) + (i < 3 ? 0 : 0.002);
  const Compared compared = compare(pointers_, summaries_of(pointers_));
  const Change& change = *row_of(compared, "best top-1").changes[1];
  EXPECT_LT(change.interval.low, 0);
  EXPECT_GT(change.interval.high, 0.005);
  EXPECT_LT(change.interval.high, 0.01);
  EXPECT_EQ(row_of(compared, "best top-1").verdicts[1], "undecided");
}

TEST_F(Repeats, OfOneSideAreRepeatsToo) {
  const std::vector<const report::Run*> runs = {pointers_[0], pointers_[3], pointers_[4], pointers_[5]};
  const Compared compared = compare(runs, summaries_of(runs));
  ASSERT_EQ(compared.groups.size(), 2u);
  EXPECT_EQ(compared.rows[0].changes[1]->evidence, Evidence::repeats);
}

TEST_F(Repeats, HaveTheChangeOfTheValuesBesideIt) {
  const std::vector<RunGroup> groups{{"a", {0, 1}}, {"b", {2, 3}}};
  Comparison speed{"images per second",
                   "1/s",
                   Comparison::Better::higher,
                   Comparison::Kind::speed,
                   {10, 10, 4, 25},
                   {},
                   {}};
  EXPECT_NEAR(*value_of(speed, groups[1]) / *value_of(speed, groups[0]) - 1,
              compare_repeats(std::vector<double>{10, 10}, std::vector<double>{4, 25}).change, 1e-12);
  Comparison share{"waiting for data",
                   "part",
                   Comparison::Better::lower,
                   Comparison::Kind::other,
                   {0.1, 0.3, 0, 0.2},
                   {},
                   {}};
  EXPECT_NEAR(*value_of(share, groups[0]), 0.2, 1e-12) << "differences are of means";
  EXPECT_NEAR(*value_of(share, groups[1]), 0.1, 1e-12);
}

TEST_F(Repeats, OfSeedsAloneAreComparedAsTheyAre) {
  pointers_.resize(3);
  const Compared compared = compare(pointers_, summaries_of(pointers_));
  EXPECT_EQ(compared.groups.size(), 3u);
  for (std::size_t g : {1u, 2u}) {
    EXPECT_EQ(compared.rows[0].verdicts[g], "undecided");
    EXPECT_EQ(row_of(compared, "best top-1").verdicts[g], "undecided");
  }
}

TEST_F(TwoRuns, ThatDidNotFinishHaveNoComparableAccuracy) {
  runs_[1].end->reason = "interrupted";
  const Compared compared = compare(pointers_, summaries_of(pointers_));
  EXPECT_EQ(row_of(compared, "best top-1").verdicts[1], "unlike");
  EXPECT_EQ(compared.unlike[1], std::vector<std::string>{"fast did not finish: accuracy is not comparable"});
  EXPECT_EQ(compared.rows[0].verdicts[1], "faster") << "its speed is";
  EXPECT_NE(terminal_text(pointers_).find("+0.00 points  not comparable\n"), std::string::npos)
      << terminal_text(pointers_);
}

TEST_F(TwoRuns, DifferInWhatWasSet) {
  for (report::Run& run : runs_) {
    for (const char* name : {"name", "started", "command"}) run.facts.emplace_back(name, run.name);
    for (const char* name : {"run.name", "run.output_dir"}) run.options.emplace_back(name, run.name);
    run.options.emplace_back("model.classes", "from the data " + run.name);  // 10, as the first line says
  }
  const auto rows = differences(pointers_);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].name, "note");
  EXPECT_EQ(rows[0].values, (std::vector<std::string>{"", "faster"}));
}

TEST_F(TwoRuns, AreTextForATerminal) {
  runs_[0].notices.push_back({3, "x", "moves the cursor\x1b[2J"});
  const std::string text = terminal_text(pointers_);
  EXPECT_NE(text.find("slow: finished after step 60 of 20"), std::string::npos) << text;
  EXPECT_NE(text.find("fast against slow:"), std::string::npos);
  EXPECT_EQ(text.find("Settings that differ:"), 0u) << "what differs comes first";
  EXPECT_NE(text.find("faster in these two runs"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST_F(TwoRuns, AreTablesOfEverything) {
  const auto names = write_csv(pointers_, folder_.path() / "out" / "tables");
  EXPECT_EQ(names, (std::vector<std::string>{"summary.csv", "steps.csv", "evaluations.csv", "changes.csv"}));
  const CsvTable changes = read_csv(folder_.path() / "out" / "tables" / "changes.csv");
  EXPECT_EQ(changes.rows[0][static_cast<std::size_t>(changes.column("verdict"))], "faster");
  const CsvTable steps = read_csv(folder_.path() / "out" / "tables" / "steps.csv");
  EXPECT_EQ(steps.rows.size(), 120u);
  EXPECT_EQ(steps.header.front(), "run");
  EXPECT_EQ(number_of(steps.rows[61][static_cast<std::size_t>(steps.column("step"))]), 2);
  EXPECT_EQ(steps.rows[61][0], "fast");
  EXPECT_EQ(read_csv(folder_.path() / "out" / "tables" / "summary.csv").rows.size(), 2u);
}

TEST(Sparkline, HasEightHeights) {
  EXPECT_EQ(sparkline({0, 1, 2, 3, 4, 5, 6, 7}, 8), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline({5, 5}, 8), "▁▁");
  EXPECT_EQ(sparkline({NAN}, 8), "");
}

}  // namespace
}  // namespace redline::report
