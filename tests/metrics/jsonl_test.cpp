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
  step.seconds = 0.25;
  step.gap.data = 0.25;
  step.gap.evaluation = 2;
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
  EXPECT_EQ(all[1]["images_per_second"], 128.0);  // stalls count, evaluations do not
  EXPECT_EQ(all[1]["seconds"], 0.25);
  EXPECT_EQ(all[1]["gap_seconds"], 2.25);
  EXPECT_EQ(all[1]["data_seconds"], 0.25);
  EXPECT_EQ(all[1]["evaluation_seconds"], 2);
  EXPECT_FALSE(all[1].contains("checkpoint_seconds"));
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
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit small{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit old_{};
  void (*handler_)(int);
};

TEST_F(Jsonl, LinesThatCannotBeWrittenAreKeptUntilTheyCan) {
  JsonlSink sink(path());
  sink.step({});
  const auto whole = fs::file_size(path());
  {
    const SmallFiles limit(whole + 20);
    sink.step({});
    sink.step({});
    EXPECT_EQ(fs::file_size(path()), whole);  // whole lines at any time
  }
  sink.flush();
  EXPECT_EQ(records().size(), 3U);
}

TEST_F(Jsonl, AnEndThatCannotBeWrittenIsAnIoError) {
  JsonlSink sink(path());
  sink.step({});
  const auto whole = fs::file_size(path());
  const SmallFiles limit(whole + 20);
  EXPECT_THROW(sink.end({}), IoError);
  EXPECT_EQ(fs::file_size(path()), whole);
}

Step step_number(std::int64_t number) {
  Step step;
  step.step = number;
  return step;
}

Evaluation evaluation_after(std::int64_t step) {
  Evaluation evaluation;
  evaluation.step = step;
  return evaluation;
}

TEST_F(Jsonl, AResumedRunTakesBackWhatComesAgain) {
  for (const bool evaluated : {false, true}) {
    fs::remove(path());
    {
      JsonlSink sink(path());
      sink.begin({});
      for (const std::int64_t number : {1, 2, 3}) sink.step(step_number(number));
      sink.evaluation(evaluation_after(3));
      sink.step(step_number(4));
      sink.end({});
    }
    std::ofstream(path(), std::ios::app) << "{\"kind\":\"step\",\"st";  // torn by a power cut
    const Resumed resumed{3, evaluated};
    JsonlSink sink(path(), resumed);
    RunInfo info;
    info.resumed = resumed;
    sink.begin(info);
    sink.step(step_number(4));
    std::vector<std::string> kinds;
    for (const auto& record : records()) kinds.push_back(record["kind"]);
    std::vector<std::string> expected = {"run", "step", "step", "step", "evaluation", "resume", "step"};
    if (!evaluated) expected.erase(expected.begin() + 4);
    EXPECT_EQ(kinds, expected);
  }
}

TEST_F(Jsonl, DamageInTheMiddleCostsOnlyItsLine) {
  {
    JsonlSink sink(path());
    sink.begin({});
    sink.step(step_number(1));
  }
  std::ofstream(path(), std::ios::app) << "\x01garbage\n{\"kind\":7}\n{\"kind\":\"step\",\"step\":2}\n[]\n";
  const std::string all = [&] {
    std::ifstream file(path());
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  EXPECT_EQ(bytes_until(path(), {5, true}), all.size() - 3);  // up to step 2, the last line that is good
  EXPECT_EQ(bytes_until(path(), {1, true}), all.find("\x01garbage"));
}

TEST_F(Jsonl, EnergyAndLabelSmoothingAreThereWhereTheyAreKnown) {
  {
    JsonlSink sink(path());
    sink.begin({});
    sink.end({});
  }
  const auto without = records();
  EXPECT_FALSE(without.at(0).contains("label_smoothing"));
  EXPECT_FALSE(without.at(1).contains("energy_j"));
  fs::remove(path());
  JsonlSink sink(path());
  RunInfo info;
  info.label_smoothing = 0.1;
  sink.begin(info);
  End end;
  end.energy_j = 2560.5;
  end.energy_steps = 20;
  end.energy_samples = 1280;
  end.steps = 30;
  end.seconds = 100;
  end.gap.evaluation = 40;
  sink.end(end);
  const auto with = records();
  EXPECT_EQ(with.at(0)["label_smoothing"], 0.1);
  EXPECT_EQ(with.at(1)["energy_j"], 2560.5);
  EXPECT_EQ(with.at(1)["energy_steps"], 20);
  EXPECT_EQ(with.at(1)["energy_samples"], 1280);
  EXPECT_EQ(with.at(1)["train_seconds"], 60) << "evaluations are no part of training";
}

}  // namespace
}  // namespace redline::metrics
