#include "report/prometheus.h"

#include <cmath>

#include <gtest/gtest.h>

#include "../base/temporary_folder.h"
#include "made_run.h"
#include "run_folder.h"

namespace redline::report {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Prometheus, CountsStepsImagesAndTime) {
  const TemporaryFolder folder;
  write_run(folder.path() / "first", 20);
  const report::Run run = read_run(folder.path() / "first");
  const std::string text = prometheus_text({&run});
  for (const char* line :
       {"redline_steps_total{run=\"first\"} 20\n", "redline_images_total{run=\"first\"} 320\n",
        "redline_planned_steps{run=\"first\"} 20\n",
        "redline_run_state{run=\"first\",state=\"finished\"} 1\n",
        "redline_run_state{run=\"first\",state=\"failed\"} 0\n",
        "redline_validation_top1_ratio{run=\"first\",weights=\"model\"} 0.6\n",
        "# TYPE redline_gap_seconds_total counter\n"})
    EXPECT_EQ(count(text, line), 1u) << line << text;
  EXPECT_EQ(count(text, "redline_gap_seconds_total{run=\"first\",cause=\"data\"} 1"), 1u) << text;
}

// An evaluation and a checkpoint after the last step are in the run's last line alone.
TEST(Prometheus, TimeIsThatOfTheWholeRunWhereItsEndIsKnown) {
  report::Run run = made_run("run", std::vector<double>(4, 1));
  EXPECT_EQ(count(prometheus_text({&run}), "redline_step_seconds_total{run=\"run\"} 4\n"), 1u);
  run.end.emplace();
  run.end->step_seconds = 4;
  run.end->gap.evaluation = 2.5;
  EXPECT_EQ(
      count(prometheus_text({&run}), "redline_gap_seconds_total{run=\"run\",cause=\"evaluation\"} 2.5\n"),
      1u);
}

// 150 steps of 64 images: the first 50 take 4 s each, the rest 1 s with another for want of a batch.
TEST(Prometheus, SpeedIsOfTheLastStepsAndUnitsAreBaseUnits) {
  report::Run run;
  run.name = "made";
  for (int i = 1; i <= 150; ++i) {
    for (const StepColumn& column : step_columns()) (run.steps.*column.values).push_back(0);
    run.steps.step.back() = i;
    run.steps.samples.back() = 64;
    run.steps.seconds.back() = i <= 50 ? 4 : 1;
    run.steps.data_seconds.back() = i <= 50 ? 0 : 1;
    run.steps.host_seconds.back() = 0.25;
    run.steps.evaluation_seconds.back() = i == 100 ? 500 : 0;
    run.steps.epoch.back() = i / 75;
    run.steps.loss.back() = 3.0 / i;
    run.steps.top1.back() = i / 300.0;
    run.steps.learning_rate.back() = 0.1;
    run.steps.gradient_norm.back() = 7;
    run.steps.loss_scale.back() = 1024;
    run.steps.gap_seconds.back() =
        run.steps.data_seconds.back() + run.steps.host_seconds.back() + run.steps.evaluation_seconds.back();
  }
  run.steps.step.back() = 1150;  // of a resumed run whose first part is gone
  run.steps.skipped = 4;
  run.info.total_steps = 2000;
  for (const double top1 : {0.9, 0.7})
    run.evaluations.push_back({100, 1, "model", 1.5, top1, 0.95, 10, 1, 9});
  run.notices.resize(6);
  run.checkpoints.resize(3);
  run.checkpoints[1].error = "the disk is full";
  Telemetry telemetry;
  telemetry.source = "telemetry.csv";
  telemetry.add_line("seconds,gpu_power_mw,gpu_sm_clock_mhz,gpu_use_pct,gpu_temperature_c");
  telemetry.add_line("1,500000,1500,97,70");
  telemetry.add_line("2,686000,1680,98,71");
  run.telemetry.push_back(telemetry);
  const std::string text = prometheus_text({&run});
  const auto value = [&](const std::string& name) {
    const std::size_t at = text.find("\n" + name);
    return at == std::string::npos ? NAN : std::stod(text.substr(text.find("} ", at) + 2));
  };
  EXPECT_NEAR(value("redline_images_per_second{"), 64 / 2.25, 1e-9);
  EXPECT_EQ(value("redline_steps_total{"), 1150);
  EXPECT_EQ(value("redline_planned_steps{"), 2000);
  EXPECT_EQ(value("redline_skipped_steps_total{"), 4);
  EXPECT_EQ(value("redline_epoch{"), 2);
  EXPECT_EQ(value("redline_train_loss{"), 0.02);
  EXPECT_EQ(value("redline_train_top1_ratio{"), 0.5);
  EXPECT_EQ(value("redline_learning_rate{"), 0.1);
  EXPECT_EQ(value("redline_gradient_norm{"), 7);
  EXPECT_EQ(value("redline_loss_scale{"), 1024);
  EXPECT_EQ(value("redline_validation_top1_ratio{"), 0.7) << "of the last";
  EXPECT_EQ(value("redline_validation_top5_ratio{"), 0.95);
  EXPECT_EQ(value("redline_validation_loss{"), 1.5);
  EXPECT_EQ(value("redline_notices_total{"), 6);
  EXPECT_EQ(value("redline_step_seconds_total{"), 300);
  EXPECT_EQ(value("redline_gap_seconds_total{run=\"made\",cause=\"data\"}"), 100);
  EXPECT_EQ(value("redline_gap_seconds_total{run=\"made\",cause=\"host\"}"), 37.5);
  EXPECT_EQ(value("redline_gap_seconds_total{run=\"made\",cause=\"evaluation\"}"), 500);
  EXPECT_EQ(value("redline_checkpoints_total{"), 2);
  EXPECT_EQ(value("redline_failed_checkpoints_total{"), 1);
  EXPECT_NEAR(value("redline_gpu_power_watts{"), 686, 1e-3);
  EXPECT_NEAR(value("redline_gpu_clock_hertz{"), 1.68e9, 1);
  EXPECT_NEAR(value("redline_gpu_use_ratio{"), 0.98, 1e-6);
  EXPECT_EQ(value("redline_gpu_temperature_celsius{"), 71);
}

TEST(Prometheus, LinesOfAMetricStayTogetherAndRunsHaveLabelsOfTheirOwn) {
  report::Run one, two;
  one.name = two.name = "same";
  one.folder = "/a/same";
  two.folder = "/b/same";
  const std::string text = prometheus_text({&one, &two, &two});
  EXPECT_EQ(count(text, "# TYPE redline_steps_total counter\n"), 1u);
  EXPECT_EQ(count(text, "redline_steps_total{run=\"/a/same\"} 0\nredline_steps_total{run=\"/b/same\"} 0\n"),
            1u)
      << text;
  EXPECT_EQ(count(text, "redline_steps_total{run=\"/b/same\"}"), 1u) << "a folder that is named twice";
}

TEST(Prometheus, LabelsAreEscapedAndUnknownValuesLeftOut) {
  report::Run run;
  run.name = "a\"b\\c\nd\xff";
  run.steps.step = {1};
  run.steps.loss = {std::numeric_limits<double>::quiet_NaN()};
  const std::string text = prometheus_text({&run});
  EXPECT_EQ(count(text, "redline_steps_total{run=\"a\\\"b\\\\c d\xef\xbf\xbd\"} 1\n"), 1u) << text;
  EXPECT_EQ(count(text, "redline_train_loss"), 0u);
}

TEST(Prometheus, TheSpeedOfAShortRunIsThatOfItsReport) {
  const report::Run run = made_run("run", {30, 2, 2});  // the first step warms up
  const std::string text = prometheus_text({&run});
  EXPECT_NE(text.find("\nredline_images_per_second{run=\"run\"} 32\n"), std::string::npos) << text;
  const report::Run first = made_run("run", {30});
  EXPECT_EQ(prometheus_text({&first}).find("redline_images_per_second"), std::string::npos);
}

}  // namespace
}  // namespace redline::report
