#include "metrics/jsonl.h"

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace redline::metrics {
namespace {

namespace fs = std::filesystem;

class Jsonl : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("redline-jsonl-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path path() const { return folder_ / "metrics.jsonl"; }
  // Parsing is strict: a bare NaN in a line would throw.
  std::vector<nlohmann::json> records() const {
    std::ifstream file(path());
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(file, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }

 private:
  fs::path folder_;
};

TEST_F(Jsonl, OneRecordALineSchemaFirst) {
  JsonlSink sink(path());
  RunInfo info;
  info.name = "a run";
  info.parameters = 25557032;
  info.seed = std::numeric_limits<std::uint64_t>::max();
  sink.begin(info);
  Step step;
  step.step = 1;
  step.loss = 2.5;
  step.samples = 64;
  step.seconds = 0.5;
  sink.step(step);
  Evaluation evaluation;
  evaluation.weights = "ema";
  evaluation.top1 = 0.75;
  sink.evaluation(evaluation);
  End end;
  end.reason = "finished";
  end.steps = 1;
  sink.end(end);

  const auto all = records();  // the sink still lives: nothing waits in a buffer
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0]["schema"], "redline.metrics");
  EXPECT_EQ(all[0]["version"], kJsonlVersion);
  EXPECT_EQ(all[0]["kind"], "run");
  EXPECT_EQ(all[0]["parameters"], 25557032);
  EXPECT_EQ(all[0]["seed"], std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(all[1]["kind"], "step");
  EXPECT_EQ(all[1]["loss"], 2.5);
  EXPECT_EQ(all[1]["images_per_second"], 128.0);
  EXPECT_FALSE(all[1].contains("skipped"));
  EXPECT_EQ(all[2]["kind"], "evaluation");
  EXPECT_EQ(all[2]["weights"], "ema");
  EXPECT_EQ(all[2]["top1"], 0.75);
  EXPECT_EQ(all[3]["kind"], "end");
  EXPECT_EQ(all[3]["reason"], "finished");
  EXPECT_FALSE(all[3].contains("detail"));
}

TEST_F(Jsonl, NumbersThatJsonLacksAreNullWithText) {
  JsonlSink sink(path());
  Step step;
  step.skipped = true;
  step.loss = std::nan("");
  step.top1 = -std::numeric_limits<double>::infinity();
  step.top5 = std::numeric_limits<double>::infinity();
  sink.step(step);
  const auto all = records();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_TRUE(all[0]["loss"].is_null());
  EXPECT_EQ(all[0]["loss_text"], "nan");
  EXPECT_EQ(all[0]["top1_text"], "-inf");
  EXPECT_EQ(all[0]["top5_text"], "inf");
  EXPECT_EQ(all[0]["skipped"], true);
}

TEST_F(Jsonl, BytesThatAreNotTextDoNotStopARun) {
  JsonlSink sink(path());
  RunInfo info;
  info.data = "\xff\xfe/images";
  sink.begin(info);
  EXPECT_EQ(records().size(), 1U);
}

TEST_F(Jsonl, AnExistingFileIsNeverOverwritten) {
  std::ofstream(path()) << "precious\n";
  EXPECT_THROW(JsonlSink sink(path()), IoError);
}

// A file size limit stands in for a full disk: write() fails the same way, in the middle of a line.
TEST_F(Jsonl, AFailedWriteIsAnIoErrorAndLeavesWholeLines) {
  JsonlSink sink(path());
  sink.step({});
  const auto whole = fs::file_size(path());
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{whole + 20, old.rlim_max};
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(sink.step({}), IoError);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(fs::file_size(path()), whole);
  EXPECT_EQ(records().size(), 1U);
}

}  // namespace
}  // namespace redline::metrics
