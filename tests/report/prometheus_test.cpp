#include "report/prometheus.h"

#include <gtest/gtest.h>

#include "../base/temporary_folder.h"
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

}  // namespace
}  // namespace redline::report
