#include "report/document.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../base/temporary_folder.h"
#include "made_run.h"
#include "report/summary.h"
#include "run_folder.h"

namespace redline::report {
namespace {

using Json = nlohmann::json;

TEST(Document, HoldsTheRunAndItsNumbers) {
  const TemporaryFolder folder;
  write_run(folder.path() / "first", 20);
  const report::Run run = read_run(folder.path() / "first");
  const Json page = Json::parse(document({&run}, Detail::page));
  EXPECT_EQ(page["schema"], "redline.report");
  EXPECT_EQ(page["runs"][0]["name"], "first");
  EXPECT_EQ(page["runs"][0]["series"]["loss"]["y"].size(), 20u);
  EXPECT_EQ(page["runs"][0]["step_time"]["count"], 19);
  EXPECT_EQ(page["runs"][0]["summary"]["best_evaluation"]["top1"], 0.6);
  EXPECT_EQ(page["comparison"].size(), 0u);
  const Json full = Json::parse(document({&run}, Detail::full));
  EXPECT_EQ(full["runs"][0]["series"]["seconds"].size(), 20u);
  EXPECT_EQ(full["runs"][0]["series"]["loss"][2], 1.0);
}

TEST(Document, LongRunsStaySmallAndBytesOfAnyKindAreText) {
  const TemporaryFolder folder;
  std::string lines = kFirstLine;
  for (int i = 1; i <= 10'000; ++i) lines += step_line(i, 0.5 + 1e-4 * (i % 97), 1.0 / i);
  write_text(folder.path() / "metrics.jsonl", lines);
  report::Run run = read_run(folder.path());
  run.facts.emplace_back("bytes", "\xff\xfe not UTF-8");
  const std::string text = document({&run, &run, &run}, Detail::page);
  EXPECT_LT(text.size(), 700'000u);
  EXPECT_EQ(Json::parse(text)["runs"].size(), 3u);
}

TEST(Document, TellsWhereTheTimeWentAndLeavesWarmUpOutOfSeries) {
  const TemporaryFolder folder;
  write_run(folder.path() / "first", 20);
  const report::Run run = read_run(folder.path() / "first");
  const Json json = Json::parse(document({&run}, Detail::page))["runs"][0];
  ASSERT_EQ(json["warm_up"].size(), 1u);
  EXPECT_EQ(json["warm_up"][0]["step"], 1);
  EXPECT_EQ(json["series"]["loss"]["y"].size(), 20u);
  for (const char* name : {"seconds", "images_per_second", "data_wait"}) {
    EXPECT_TRUE(json["series"][name]["y"][0].is_null()) << name;
    EXPECT_TRUE(json["series"][name]["y"][1].is_number()) << name;
  }
  EXPECT_EQ(json["series"]["split"]["x"].size(), 19u);
  EXPECT_EQ(json["series"]["elapsed"]["y"].size(), 20u);
  double sum = 0;
  for (const auto& [name, seconds] : json["time"].items()) sum += seconds.get<double>();
  EXPECT_GT(json["time"]["step"], 0.5 * sum);
  EXPECT_GT(json["time"]["data"], 0);
}

TEST(Document, LongProfilesAreCutForAPage) {
  report::Run run;
  Json profile = {{"steps", 3}, {"kernels", Json::array()}};
  for (int i = 0; i < 2000; ++i)
    profile["kernels"].push_back({{"name", std::string(5000, 'k')}, {"seconds", 1.0 / 3}});
  run.profile = Profile{"profile/summary.json", profile.dump()};
  const std::string page = document({&run}, Detail::page);
  EXPECT_LT(page.size(), 400'000u);
  EXPECT_EQ(Json::parse(page)["runs"][0]["profile"]["steps"], 3);
  EXPECT_EQ(Json::parse(document({&run}, Detail::full))["runs"][0]["profile"], profile);
}

// A stalled run: 40 steps of 0.5 s, two of which take longer, and gaps by cause.
report::Run stalled() {
  std::vector<double> seconds(41, 0.5), gaps(41, 0);
  seconds[7] = 2;
  seconds[9] = 30;
  gaps[5] = 5;
  report::Run run = made_run("stalled", seconds, gaps);
  run.steps.begins = {0};
  run.info.ranks = 2;
  run.steps.exchange_seconds[5] = 1;
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    run.steps.slowest_rank[i] = i < 11 ? 1 : 0;
    run.steps.communication_seconds[i] = seconds[i] / 10;
    run.steps.loss_scale[i] = 1;
  }
  return run;
}

TEST(Document, HasTheFiguresOfTheSummary) {
  report::Run run = stalled();
  for (const double top1 : {0.8, 0.7}) run.evaluations.push_back({41, 1, "model", 1, top1, 0.9, 100, 1, 9});
  run.notices.push_back({41, "disturbed", "a neighbour"});
  Telemetry telemetry;
  telemetry.add_line("seconds,gpu_power_mw,gpu_throttle,gpu_energy_mj");
  for (int i = 0; i <= 60; ++i)
    telemetry.add_line(fmt::format("{},100000,{},{}", i, i < 15 ? "sw_thermal" : "none", 100'000 * i));
  run.telemetry = {telemetry};
  const RunSummary summary = summarize(run);
  const Json json = Json::parse(document({&run}, Detail::full))["runs"][0];
  const Json& told = json["summary"];
  const double seconds = 38 * 0.5 + 2 + 30 + 5;
  EXPECT_NEAR(told["images_per_second"].get<double>(), 40 * 64 / seconds, 1e-9);
  EXPECT_NEAR(told["images_per_second_at_median"].get<double>(), 128, 1e-9);
  EXPECT_NEAR(told["energy_j"].get<double>(), 6000, 1e-3);
  EXPECT_NEAR(told["energy"]["joules_per_step"].get<double>(), *summary.energy->joules_per_step, 1e-9);
  EXPECT_NEAR(told["throttling"][0]["share"].get<double>(), 0.25, 1e-9);
  EXPECT_EQ(told["last_evaluation"]["top1"], 0.7);
  EXPECT_EQ(told["best_evaluation"]["top1"], 0.8);
  EXPECT_EQ(told["disturbances"], std::vector<std::string>{"a neighbour"});
  const Json& times = json["step_time"];
  const auto& steps = *summary.step_seconds;
  EXPECT_EQ(times["median"], 0.5);
  EXPECT_NEAR(times["mean"].get<double>(), (38 * 0.5 + 2 + 30) / 40, 1e-9);
  EXPECT_EQ(times["p90"], steps.p90);
  EXPECT_EQ(times["p99"], steps.p99);
  EXPECT_EQ(times["max"], 30);
  EXPECT_EQ(times["histogram"]["high"], steps.p99) << "one slow step does not set the scale";
  EXPECT_EQ(times["histogram"]["above"], 1);
  EXPECT_EQ(json["slowest_ranks"], (std::vector<int>{30, 11}));
  EXPECT_TRUE(json["telemetry"][0]["columns"].contains("gpu_energy_mj"));
  EXPECT_FALSE(Json::parse(document({&run}, Detail::page))["runs"][0]["telemetry"][0]["columns"].contains(
      "gpu_energy_mj"))
      << "a counter that only grows";
  run.info.ranks = 1;
  EXPECT_TRUE(Json::parse(document({&run}, Detail::full))["runs"][0]["slowest_ranks"].empty());
}

TEST(Document, SeriesCountStalls) {
  const report::Run run = stalled();
  const Json series = Json::parse(document({&run}, Detail::page))["runs"][0]["series"];
  const auto at = [&](const char* name, std::size_t i) { return series[name]["y"][i].get<double>(); };
  EXPECT_NEAR(at("images_per_second", 4), 128, 1e-3);
  EXPECT_NEAR(at("images_per_second", 5), 64 / 5.5, 1e-3);
  EXPECT_NEAR(at("data_wait", 5), 5 / 5.5, 1e-5) << "never more than all of the time";
  EXPECT_NEAR(at("communication", 4), 0.1, 1e-5);
  EXPECT_NEAR(at("communication", 5), (0.05 + 1) / 5.5, 1e-5) << "of the step and the gap before it";
}

TEST(Document, TimeIsThatOfTheWholeRunWhereItsEndIsKnown) {
  report::Run run = stalled();
  const auto time = [&] { return Json::parse(document({&run}, Detail::full))["runs"][0]["time"]; };
  EXPECT_NEAR(time()["step"].get<double>(), 39 * 0.5 + 2 + 30, 1e-9);
  EXPECT_NEAR(time()["data"].get<double>(), 5, 1e-9);
  EXPECT_EQ(time()["evaluation"], 0);
  run.end = metrics::End{};
  run.end->step_seconds = 60;
  run.end->gap = {7, 1, 0, 12, 3};
  EXPECT_EQ(time()["step"], 60);
  EXPECT_EQ(time()["data"], 7);
  EXPECT_EQ(time()["evaluation"], 12) << "after the last step";
  EXPECT_EQ(time()["checkpoint"], 3);
}

TEST(Document, PagesOfManyRunsAndDevicesHaveFewerPointsEach) {
  report::Run run = made_run("run", std::vector<double>(3000, 0.5));
  run.steps.loss = run.steps.step;
  std::string header = "seconds", line;
  for (int i = 0; i < 20; ++i) header += fmt::format(",column{}", i);
  Telemetry telemetry;
  telemetry.add_line(header);
  for (int i = 0; i < 1000; ++i) {
    line = std::to_string(i);
    for (int k = 0; k < 20; ++k) line += fmt::format(",{}", i * 7919 % 1000);
    telemetry.add_line(line);
  }
  run.telemetry = {telemetry, telemetry};
  const auto points = [&](std::size_t runs, bool of_steps) {
    const std::vector<const report::Run*> list(runs, &run);
    const Json json = Json::parse(document(list, Detail::page))["runs"][0];
    return (of_steps ? json["series"]["loss"] : json["telemetry"][0]["columns"]["column3"])["x"].size();
  };
  // 14,000 points of steps and 12,000 of telemetry in all, each series thinned to about its share.
  EXPECT_GT(points(1, true), 500u);
  EXPECT_LT(points(20, true), 2 * 14'000u / (8 * 20));
  EXPECT_GT(points(1, false), 150u);
  EXPECT_LT(points(5, false), 2 * 12'000u / (5 * 2 * 20));
}

TEST(Document, LongListsKeepBothEnds) {
  report::Run run = made_run("run", std::vector<double>(4, 1));
  for (int i = 0; i < 2000; ++i) run.evaluations.push_back({i, 1, "model", 1, 0.5, 0.9, 100, 1, 9});
  const Json page = Json::parse(document({&run}, Detail::page))["runs"][0]["evaluations"];
  EXPECT_EQ(page.size(), 500u);
  EXPECT_EQ(page.front()["step"], 0);
  EXPECT_EQ(page.back()["step"], 1999);
  EXPECT_EQ(Json::parse(document({&run}, Detail::full))["runs"][0]["evaluations"].size(), 2000u);
}

TEST(Document, OnlyVerdictsOfAChangeAreBeyondNoise) {
  const report::Run before = made_run("before", std::vector<double>(100, 0.5));
  const auto speed = [&](const report::Run& after, bool judge_unlike = false) {
    return Json::parse(
        document({&before, &after}, Detail::full, judge_unlike))["comparison"][0]["changes"][1];
  };
  const auto expect = [](const Json& change, const char* verdict, bool beyond) {
    EXPECT_EQ(change["verdict"], verdict);
    EXPECT_EQ(change["beyond_noise"], beyond) << verdict;
  };
  expect(speed(made_run("after", std::vector<double>(100, 0.4))), "faster", true);
  expect(speed(made_run("after", std::vector<double>(12, 0.4))), "undecided", false);
  report::Run other = made_run("after", std::vector<double>(100, 0.4));
  other.info.model = "resnet50";
  expect(speed(other), "unlike", false);
  expect(speed(other, true), "faster", true);
  // Repeats whose speeds agree to a thousandth.
  std::vector<report::Run> runs;
  for (int i = 0; i < 10; ++i) {
    runs.push_back(made_run(fmt::format("run{}", i), std::vector<double>(30, 0.5 + 1e-5 * (i % 5))));
    runs.back().info.dtype = i < 5 ? "fp32" : "bf16";
  }
  std::vector<const report::Run*> pointers;
  for (const report::Run& run : runs) pointers.push_back(&run);
  const Json comparison = Json::parse(document(pointers, Detail::full))["comparison"];
  expect(comparison[0]["changes"][7], "same", false);
  for (const Json& row : comparison) {
    EXPECT_EQ(row["measure"], row["unit"] == "part" ? "difference" : "ratio") << row["name"];
  }
}

}  // namespace
}  // namespace redline::report
