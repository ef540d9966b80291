#include "report/run.h"

#include <cmath>

#include <gtest/gtest.h>

#include "../base/temporary_folder.h"
#include "base/error.h"
#include "report/summary.h"
#include "run_folder.h"

namespace redline::report {
namespace {

TEST(Run, AWholeFolderIsReadWhole) {
  const TemporaryFolder folder;
  write_run(folder.path() / "first", 20);
  const report::Run run = read_run(folder.path() / "first");
  EXPECT_EQ(run.name, "first");
  EXPECT_TRUE(run.problems.empty()) << run.problems.front();
  EXPECT_EQ(run.info.model, "resnet18");
  EXPECT_EQ(run.info.version, "0.1.0");
  EXPECT_EQ(run.info.accumulate, 2);
  ASSERT_EQ(run.steps.size(), 20u);
  EXPECT_EQ(run.steps.step.back(), 20);
  EXPECT_EQ(run.steps.loss[1], 1.5);
  EXPECT_EQ(run.steps.gradient_norm[3], 2.0);
  ASSERT_EQ(run.evaluations.size(), 1u);
  EXPECT_EQ(run.evaluations[0].top1, 0.6);
  EXPECT_EQ(run.fact("hostname"), "box");
  EXPECT_EQ(run.options.at(0), (Pairs::value_type{"model.name", "resnet18"}));
  EXPECT_EQ(state_of(run), State::finished);
  EXPECT_EQ(step_seconds(run).size(), 19u) << "the first step warms up";
}

TEST(Run, SummaryHasTheMedianStep) {
  const TemporaryFolder folder;
  write_run(folder.path(), 20);
  const RunSummary summary = summarize(read_run(folder.path()));
  ASSERT_TRUE(summary.step_seconds);
  EXPECT_NEAR(summary.step_seconds->median, 0.515, 1e-9);  // of 0.50 .. 0.53
  EXPECT_NEAR(*summary.images_per_second_at_median, 16 / 0.515, 1e-9);
  // 19 steps of 0.50 .. 0.53 s, each after 0.05 s without data.
  EXPECT_NEAR(*summary.images_per_second, 19 * 16 / (19 * 0.55 + 0.005 * 62), 1e-9);
  EXPECT_NEAR(*summary.final_loss, (3.0 / 19 + 3.0 / 20) / 2, 1e-12);
}

TEST(Run, DamagedLinesAreCountedAndTheRestIsGiven) {
  const TemporaryFolder folder;
  write_text(folder.path() / "metrics.jsonl",
             kFirstLine + step_line(1) + "{\"kind\":\"step\",\"st\n" + "not json\n" + "[1,2]\n" +
                 "\xff\xfe\n" + R"({"kind":"step","step":-4})" + "\n" + R"({"kind":"step","step":1e400})" +
                 "\n" + step_line(2) + R"({"kind":"novelty","step":2})" + "\n" +
                 R"({"kind":"step","step":3,"lo)");
  const report::Run run = read_run(folder.path());
  EXPECT_EQ(run.steps.size(), 2u);
  EXPECT_EQ(state_of(run), State::unfinished);
  ASSERT_EQ(run.problems.size(), 3u);
  EXPECT_EQ(run.problems[0], "metrics.jsonl: damaged lines skipped: 6 of 10, the first is line 3");
  EXPECT_EQ(run.problems[1], "metrics.jsonl: lines of unknown kinds skipped: 1");
  EXPECT_EQ(run.problems[2], "config.toml is missing: machine and options are unknown");
}

TEST(Run, NumbersThatJsonCannotHoldComeBack) {
  const TemporaryFolder folder;
  write_text(folder.path() / "metrics.jsonl",
             kFirstLine + R"({"kind":"step","step":1,"loss":null,"loss_text":"nan","gradient_norm":null,)" +
                 R"("gradient_norm_text":"inf","skipped":true})" + "\n");
  const report::Run run = read_run(folder.path());
  ASSERT_EQ(run.steps.size(), 1u);
  EXPECT_TRUE(std::isnan(run.steps.loss[0]));
  EXPECT_TRUE(std::isinf(run.steps.gradient_norm[0]));
  EXPECT_EQ(run.steps.skipped, 1u);
}

TEST(Run, OtherVersionsAreReadAsFarAsTheyAreKnown) {
  const TemporaryFolder folder;
  write_text(
      folder.path() / "metrics.jsonl",
      R"({"schema":"redline.metrics","version":9,"kind":"run","model":"resnet9000","shape":{"a":{"b":[1,{"c":2}]}}})"
      "\n" +
          step_line(1));
  write_text(folder.path() / "config.toml", "[future]\nlist = [1, 2]\nratio = 0.5\non = true\n");
  const report::Run run = read_run(folder.path());
  EXPECT_EQ(run.info.model, "resnet9000");
  EXPECT_EQ(run.steps.size(), 1u);
  ASSERT_EQ(run.problems.size(), 1u);
  EXPECT_NE(run.problems[0].find("newer than this program's"), std::string::npos);
  EXPECT_EQ(run.options.size(), 3u);
}

TEST(Run, AFolderOfNothingIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THROW(read_run(folder.path()), UsageError);
  EXPECT_THROW(read_run(folder.path() / "none"), UsageError);
}

TEST(Run, ABrokenConfigurationLosesNoNumbers) {
  const TemporaryFolder folder;
  write_run(folder.path(), 20);
  write_text(folder.path() / "config.toml", "[model\nname =");
  const report::Run run = read_run(folder.path());
  EXPECT_EQ(run.steps.size(), 20u);
  ASSERT_EQ(run.problems.size(), 1u);
  EXPECT_NE(run.problems[0].find("config.toml:1"), std::string::npos) << run.problems[0];
}

TEST(Run, GapsThatWereNotWrittenTookNothing) {
  const TemporaryFolder folder;
  write_run(folder.path(), 3);
  const report::Run run = read_run(folder.path());
  EXPECT_EQ(run.steps.seconds[0], 5);
  EXPECT_EQ(run.steps.gap_seconds[0], 0.05);
  EXPECT_EQ(run.steps.data_seconds[0], 0.05);
  EXPECT_EQ(run.steps.checkpoint_seconds[0], 0);
  ASSERT_TRUE(run.end);
  EXPECT_EQ(run.end->step_seconds, 9);
  EXPECT_EQ(run.end->gap.data, 1);
  EXPECT_EQ(run.end->train_seconds(), 10);
}

TEST(Run, AFileOfVersionOneHasTheWaitAmongItsSeconds) {
  const TemporaryFolder folder;
  write_text(folder.path() / "metrics.jsonl",
             R"({"schema":"redline.metrics","version":1,"kind":"run"})"
             "\n"
             R"({"kind":"step","step":1,"samples":16,"seconds":0.5,"data_seconds":0.125,"elapsed":0.5})"
             "\n");
  const report::Run run = read_run(folder.path());
  EXPECT_EQ(run.steps.seconds[0], 0.375);
  EXPECT_EQ(run.steps.gap_seconds[0], 0.125);
  EXPECT_EQ(run.steps.host_seconds[0], 0);
}

TEST(Run, DataIsNamedAsItIsWhereverItLies) {
  metrics::RunInfo info;
  for (const char* data : {"flowers", "/data/flowers", "elsewhere/flowers/", "./flowers"}) {
    info.data = data;
    EXPECT_EQ(data_name(info), "flowers") << data;
  }
  info.data = "/";
  EXPECT_EQ(data_name(info), "/");
}

TEST(Run, ReaderFollowsARunAndItsResume) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  write_text(file, kFirstLine + step_line(1) + step_line(2).substr(0, 20));
  RunReader reader(folder.path());
  EXPECT_TRUE(reader.update());
  EXPECT_EQ(reader.run().steps.size(), 1u) << "a line without its end waits";
  EXPECT_FALSE(reader.update());
  append_text(file, step_line(2).substr(20) + step_line(3) + step_line(4));
  EXPECT_TRUE(reader.update());
  EXPECT_EQ(reader.run().steps.size(), 4u);
  // Resumed after step 2: shorter, then longer again before the next look.
  write_text(file, kFirstLine + step_line(1) + step_line(2) + "{\"kind\":\"resume\",\"step\":2}\n" +
                       step_line(3, 0.7) + step_line(4, 0.7) + step_line(5, 0.7));
  EXPECT_TRUE(reader.update());
  EXPECT_EQ(reader.run().steps.size(), 5u);
  EXPECT_EQ(reader.run().resumes, 1);
  EXPECT_EQ(reader.run().steps.seconds[2], 0.7);
  EXPECT_EQ(step_seconds(reader.run()).size(), 3u) << "the first steps of both processes warm up";
}

TEST(Run, StepsThatComeAgainTakeThePlaceOfTheOldOnes) {
  const TemporaryFolder folder;
  write_text(folder.path() / "metrics.jsonl",
             kFirstLine + step_line(1) + step_line(2) + step_line(3) + step_line(2, 0.9) + step_line(3, 0.8));
  const report::Run run = read_run(folder.path());
  ASSERT_EQ(run.steps.size(), 3u);
  EXPECT_EQ(run.steps.seconds[1], 0.9);
}

TEST(Run, TelemetryJoinsTheParts) {
  const TemporaryFolder folder;
  write_run(folder.path(), 20);
  write_text(folder.path() / "profile" / "telemetry.csv",
             "unix_seconds,seconds,gpu_power_mw,gpu_throttle,gpu_temperature_c\n"
             "1000.0,0.0,100000,none,40\n1000.5,0.5,200000,sw_power_cap,50\n1001.0,1.0,,sw_power_cap,60\n"
             "1010.0,0.0,300000,none,45\n999.0,0.1,1,none,1\nbroken\n");
  const report::Run run = read_run(folder.path());
  ASSERT_EQ(run.telemetry.size(), 1u);
  const Telemetry& telemetry = run.telemetry[0];
  EXPECT_EQ(telemetry.seconds, (std::vector<double>{0, 0.5, 1, 10}));
  EXPECT_TRUE(std::isnan(telemetry.column("gpu_power_mw")->values[2]));
  ASSERT_EQ(telemetry.throttle.size(), 2u);
  EXPECT_EQ(telemetry.throttle[0].text, "sw_power_cap");
  EXPECT_EQ(telemetry.throttle[1].seconds, 10);
  EXPECT_EQ(telemetry.damaged, 2u);
  const RunSummary summary = summarize(run);
  ASSERT_TRUE(summary.energy);
  EXPECT_NEAR(summary.energy->power_w, 200, 1e-4);
  EXPECT_NEAR(*summary.energy->joules, 75, 1e-4) << "only where both ends of a stretch are known";
  EXPECT_EQ(*summary.temperature_c, 60);
}

TEST(Run, LongTelemetryStaysBounded) {
  Telemetry telemetry;
  telemetry.add_line("seconds,x");
  for (int i = 0; i < 1'100'000; ++i) telemetry.add_line("1,2");
  EXPECT_LT(telemetry.seconds.size(), std::size_t{1} << 20);
  EXPECT_EQ(telemetry.stride, 2u);
  EXPECT_EQ(telemetry.columns[0].values.size(), telemetry.seconds.size());
}

}  // namespace
}  // namespace redline::report
