// Whole runs through the front door, on the reference backend and synthetic data: what they leave on disk.
#include "train/session.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "train/config_file.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

class Session : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("redline-session-" + std::to_string(::getpid()));
    fs::create_directories(root_);
    out_.reset(std::tmpfile());
    config_.model.name = "resnet18";
    config_.model.image_size = 32;
    config_.model.classes = 5;
    config_.data.path = "synthetic";
    config_.device.name = "reference";
    config_.optimizer.batch_size = 2;
    config_.schedule.steps = 2;
    config_.run.output_dir = (root_ / "runs").string();
    config_.run.name = "test";
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path folder() const { return root_ / "runs" / "test"; }
  // Without notices, which a busy machine gives cause for.
  std::vector<nlohmann::json> records() const {
    std::ifstream file(folder() / "metrics.jsonl");
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(file, line);) all.push_back(nlohmann::json::parse(line));
    std::erase_if(all, [](const nlohmann::json& record) { return record["kind"] == "notice"; });
    return all;
  }
  Outcome run() { return run_training(config_, {"redline", "train"}, {out_.get(), false}); }
  std::string printed() {
    std::string all;
    std::rewind(out_.get());
    for (int c = std::fgetc(out_.get()); c != EOF; c = std::fgetc(out_.get())) all += static_cast<char>(c);
    return all;
  }

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  fs::path root_;
  std::unique_ptr<std::FILE, Close> out_;
  Config config_;
};

TEST_F(Session, LeavesConfigurationAndMetrics) {
  const Outcome outcome = run();
  EXPECT_EQ(outcome.signal, 0);
  EXPECT_EQ(outcome.folder, folder().string());
  const Config saved = read_config(folder() / "config.toml");
  EXPECT_EQ(saved.model.name, "resnet18");
  EXPECT_EQ(saved.device.dtype, "fp32");
  const auto all = records();
  ASSERT_EQ(all.size(), 4U);  // run, two steps, end
  EXPECT_EQ(all[0]["total_steps"], 2);
  EXPECT_EQ(all[2]["step"], 2);
  EXPECT_EQ(all[3]["reason"], "finished");
  EXPECT_EQ(all[3]["steps"], 2);
}

TEST_F(Session, TheSavedConfigurationRepeatsTheRun) {
  run();
  const auto first = records();
  Config again = read_config(folder() / "config.toml");
  EXPECT_THROW(run_training(again, {}, {out_.get(), false}), UsageError);  // the name is taken
  again.run.output_dir = (root_ / "again").string();
  run_training(again, {}, {out_.get(), false});
  std::ifstream file(root_ / "again" / "test" / "metrics.jsonl");
  std::string line;
  std::getline(file, line);
  std::getline(file, line);
  EXPECT_EQ(nlohmann::json::parse(line)["loss"], first[1]["loss"]);
}

TEST_F(Session, ARunThatCannotStartLeavesNothing) {
  config_.optimizer.accumulate = 1000;  // more than an epoch has
  EXPECT_THROW(run(), UsageError);
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(Session, AFailureOnTheWayIsRecorded) {
  config_.optimizer.lr = 1e30;
  config_.schedule.steps = 50;
  config_.run.max_bad_steps = 1;
  EXPECT_THROW(run(), UsageError);
  const auto all = records();
  ASSERT_GE(all.size(), 3U);
  EXPECT_EQ(all.back()["reason"], "failed");
  EXPECT_EQ(all.back()["skipped_steps"], 1);
  EXPECT_TRUE(all[all.size() - 2]["loss"].is_null());
}

TEST_F(Session, ASignalEndsTheStepAndIsRecorded) {
  config_.schedule.steps = 1000000;
  std::thread sender([this] {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < patience) {
      std::ifstream file(folder() / "metrics.jsonl");
      std::string line;
      if (std::getline(file, line) && std::getline(file, line)) break;  // a step was recorded
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ::kill(::getpid(), SIGTERM);
  });
  const Outcome outcome = run();
  sender.join();
  EXPECT_EQ(outcome.signal, SIGTERM);
  const auto all = records();
  EXPECT_EQ(all.back()["kind"], "end");
  EXPECT_EQ(all.back()["reason"], "interrupted");
  EXPECT_EQ(all.back()["detail"], "SIGTERM");
  EXPECT_EQ(all.back()["steps"], all[all.size() - 2]["step"]);
}

TEST_F(Session, ADryRunPrintsThePlanAndWritesNothing) {
  print_plan(config_, out_.get());
  const std::string text = printed();
  EXPECT_NE(text.find("parameters  11179077"), std::string::npos) << text;  // ResNet-18 with five classes
  EXPECT_NE(text.find("conv_grad_weight"), std::string::npos) << text;
  EXPECT_NE(text.find("activations"), std::string::npos) << text;
  EXPECT_TRUE(fs::is_empty(root_));
}

}  // namespace
}  // namespace redline::train
