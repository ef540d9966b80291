// Runs that are killed or stopped at random moments, and resumed: they end in the bits of an undisturbed run,
// and no checkpoint is ever less than whole. Each run is a process of its own, on the CPU backend, with
// images, augmentation and evaluation.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/random.h"
#include "data/prepare/synth.h"
#include "train/checkpoint.h"
#include "train/session.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr int kSteps = 30;  // five epochs of six steps

class Interrupt : public testing::Test {
 protected:
  void SetUp() override {
    // Killing a process loses nothing that it gave to the system, so memory is as good as a disk here.
    const fs::path memory = "/dev/shm";
    std::error_code error;
    const bool room = fs::space(memory, error).available > (std::uintmax_t{2} << 30) && !error;
    std::string name = ((room ? memory : fs::temp_directory_path()) / "redline-interrupt-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    data::SynthOptions synth;
    synth.path = root_ / "pictures";
    synth.classes = 3;
    synth.train = 12;
    synth.val = 3;
    synth.width = synth.height = 32;
    synth.threads = 1;
    data::write_synth(synth);
    config_.model.name = "resnet18";
    config_.model.image_size = 32;
    config_.data.path = synth.path.string();
    config_.data.workers = 1;
    config_.device.threads = 1;
    config_.device.deterministic = true;
    config_.optimizer.batch_size = 2;
    config_.optimizer.lr = 0.01;
    config_.schedule.epochs = 5;
    config_.schedule.name = "cosine";
    config_.run.output_dir = (root_ / "runs").string();
    config_.run.checkpoint_every = "1";
    config_.run.keep = 2;
    config_.run.quiet = true;
  }
  void TearDown() override { fs::remove_all(root_); }

  // A process that trains, resuming what it finds.
  pid_t start(const std::string& name) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    Config config = config_;
    config.run.name = name;
    int code = 70;
    try {
      spdlog::set_level(spdlog::level::err);
      std::FILE* null = std::fopen("/dev/null", "w");
      code = exit_code(run_training(config, {"redline"}, {null, false}, {true, ""}));
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      code = static_cast<int>(error.code());
    }
    ::_exit(code);
  }
  static bool runs(pid_t child) {
    siginfo_t ended{};
    return ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ended.si_pid == 0;
  }
  static int status_of(pid_t child) {
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }
  void run_to_the_end(const std::string& name) {
    const int status = status_of(start(name));
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }
  fs::path checkpoints(const std::string& name) const { return root_ / "runs" / name / "checkpoints"; }

  // Whether something is being written or half removed.
  bool unfinished(const std::string& name) const {
    std::error_code error;
    for (fs::directory_iterator at(checkpoints(name), error), end; !error && at != end; at.increment(error))
      if (at->path().filename().string()[0] == '.') return true;
    return false;
  }
  void expect_whole(const std::string& name) const {
    for (const std::int64_t step : list_checkpoints(checkpoints(name)))
      EXPECT_NO_THROW(open_checkpoint(checkpoints(name) / checkpoint_name(step)));
    for (const char* link : {"latest", "best"}) {
      if (!fs::is_symlink(checkpoints(name) / link)) continue;
      EXPECT_TRUE(fs::exists(checkpoints(name) / link / "state.json")) << link;
    }
  }
  void expect_same_end(const std::string& name) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const fs::path last = checkpoint_name(kSteps);
      EXPECT_TRUE(read_file(checkpoints("undisturbed") / last / file) ==
                  read_file(checkpoints(name) / last / file))
          << file;
    }
    EXPECT_EQ(numbers(name), numbers("undisturbed"));
  }
  // Losses and accuracies in the order of metrics.jsonl: no gap and no double.
  std::vector<std::string> numbers(const std::string& name) const {
    std::vector<std::string> all;
    std::ifstream file(root_ / "runs" / name / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json["kind"] == "step" || json["kind"] == "evaluation")
        all.push_back(fmt::format("{} {} {} {}", json["kind"].get<std::string>(), json["step"].get<int>(),
                                  json["loss"].get<double>(), json["top1"].get<double>()));
    }
    return all;
  }

  fs::path root_;
  Config config_;
};

TEST_F(Interrupt, KilledAtThirtyMomentsItEndsInTheSameBits) {
  const auto begun = std::chrono::steady_clock::now();
  run_to_the_end("undisturbed");
  const auto length = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begun);
  Random random(2025);
  int in_writing = 0;
  for (int kill = 0; kill < 30; ++kill) {
    const pid_t child = start("killed");
    // Every other one as soon as it is seen writing; the rest at any moment of the first part of a run.
    if (kill % 2 == 0) {
      for (int i = 0; i < 20000 && !unfinished("killed") && runs(child); ++i)
        std::this_thread::sleep_for(milliseconds(1));
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(30'000)));
    } else {
      std::this_thread::sleep_for(
          milliseconds(random.below(static_cast<std::uint64_t>(length.count()) / 3 + 1)));
    }
    ::kill(child, SIGKILL);
    status_of(child);
    in_writing += unfinished("killed") ? 1 : 0;
    expect_whole("killed");
  }
  EXPECT_GT(in_writing, 0);
  run_to_the_end("killed");
  EXPECT_FALSE(unfinished("killed"));
  expect_whole("killed");
  expect_same_end("killed");
}

TEST_F(Interrupt, StoppedBySignalsItEndsInTheSameBitsAndLeavesNothingHalfDone) {
  config_.model.ema = true;
  config_.schedule.train_sizes = {config_.model.image_size / 2, config_.model.image_size};
  config_.run.checkpoint_every = "7";
  run_to_the_end("undisturbed");
  Random random(7);
  const std::vector<std::pair<int, int>> ends = {{SIGTERM, 75}, {SIGINT, 130}, {SIGUSR1, 75}, {SIGTERM, 75}};
  std::int64_t before = -1;
  for (const auto& [signal, code] : ends) {
    const pid_t child = start("stopped");
    const fs::path metrics = root_ / "runs" / "stopped" / "metrics.jsonl";
    // A moment after this start has recorded something.
    const auto size = [&] {
      std::error_code error;
      const auto bytes = fs::file_size(metrics, error);
      return error ? 0 : bytes;
    };
    const auto first = size();
    for (int i = 0; i < 20000 && size() == first; ++i) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(random.below(300)));
    ::kill(child, signal);
    const int status = status_of(child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), code);
    EXPECT_FALSE(unfinished("stopped"));
    expect_whole("stopped");
    const auto newest = list_checkpoints(checkpoints("stopped"));
    ASSERT_FALSE(newest.empty());
    EXPECT_GE(newest[0], before);  // nothing that was done is lost
    before = newest[0];
  }
  EXPECT_LT(before, kSteps) << "too quick to interrupt";
  run_to_the_end("stopped");
  expect_same_end("stopped");
}

}  // namespace
}  // namespace redline::train
