#include "train/run_folder.h"

#include <filesystem>
#include <fstream>

#include <unistd.h>

#include <gtest/gtest.h>

#include "base/error.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

class RunFolders : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("redline-run-folder-" + std::to_string(::getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  fs::path root_;
};

TEST_F(RunFolders, WithoutKeepNothingStays) {
  {
    RunFolder folder(root_ / "a" / "b", "run", true);
    std::ofstream(folder.path() / "config.toml") << "half";
  }
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(RunFolders, AnotherRunsFolderSurvivesACleanUp) {
  {
    RunFolder folder(root_ / "a", "run", true);
    fs::create_directory(root_ / "a" / "other");
  }
  EXPECT_TRUE(fs::exists(root_ / "a" / "other"));
  EXPECT_FALSE(fs::exists(root_ / "a" / "run"));
}

TEST_F(RunFolders, AChosenNameIsNeverTakenTwice) {
  {
    RunFolder folder(root_, "run", true);
    folder.keep();
  }
  std::ofstream(root_ / "run" / "metrics.jsonl") << "precious";
  EXPECT_THROW(RunFolder(root_, "run", true), UsageError);
  EXPECT_TRUE(fs::exists(root_ / "run" / "metrics.jsonl"));
}

TEST_F(RunFolders, ADefaultNameThatIsTakenGetsANumber) {
  RunFolder first(root_, "run", false), second(root_, "run", false);
  EXPECT_EQ(first.name(), "run");
  EXPECT_EQ(second.name(), "run-2");
}

// As when the tasks of a job array resume the newest run.
TEST_F(RunFolders, OneThatIsInUseIsNotOpened) {
  RunFolder first(root_, "run", false);
  try {
    RunFolder second(root_ / "run");
    FAIL() << "two runs write to one folder";
  } catch (const TryAgainError& why) {
    EXPECT_TRUE(std::string(why.what()).ends_with("; wait for it, or choose another --name or --output-dir"))
        << why.what();
  }
}

TEST_F(RunFolders, AFileInTheWayIsAnIoError) {
  std::ofstream(root_ / "file") << "x";
  EXPECT_THROW(RunFolder(root_ / "file", "run", true), IoError);
  EXPECT_THROW(RunFolder(root_ / "file" / "deeper", "run", true), IoError);
}

TEST(RunName, IsMadeOfModelDataAndTime) {
  EXPECT_EQ(default_run_name("resnet50", "/data/flowers 17/", "2025-01-31T08:15:00Z"),
            "resnet50-flowers-17-20250131-081500");
  EXPECT_EQ(default_run_name("resnet18", "..", "2025-01-31T08:15:00Z"), "resnet18-data-20250131-081500");
}

}  // namespace
}  // namespace redline::train
