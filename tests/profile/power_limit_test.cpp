#include "profile/power_limit.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/signals.h"

namespace redline::profile {
namespace {

constexpr const char* kAddress = "0000:18:00.0";

bool ignores(pid_t process, int signal) {
  std::ifstream in(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("SigIgn:"))
      return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1) != 0;
  return false;
}

// A driver whose limit is in a file.
class PowerLimitTest : public testing::Test {
 protected:
  PowerLimitTest() {
    path_ = std::filesystem::temp_directory_path() / ("power_limit_test." + std::to_string(::getpid()));
    ::setenv("REDLINE_FAKE_POWER_LIMIT", path_.c_str(), 1);
    write(650'000);
  }
  ~PowerLimitTest() override {
    ::unsetenv("REDLINE_FAKE_POWER_LIMIT");
    ::unsetenv("REDLINE_FAKE_POWER_REFUSED");
    std::filesystem::remove(path_);
  }
  void write(unsigned milliwatts) const { std::ofstream(path_) << milliwatts; }
  unsigned now() const {
    unsigned milliwatts = 0;
    std::ifstream(path_) >> milliwatts;
    return milliwatts;
  }
  // The watcher is another process: it takes a moment.
  unsigned soon(unsigned expected) const {
    for (int i = 0; i < 500 && now() != expected; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return now();
  }
  // Runs `body` in a process that has set 400 W; gives its status.
  template <typename Body>
  int in_process(Body body) const {
    const pid_t process = ::fork();
    if (process == 0) {
      PowerLimit limit(FAKE_NVML);
      limit.open(kAddress, {400}, "--power-limits");
      limit.set(400);
      body(limit);
      std::_Exit(3);
    }
    int status = 0;
    ::waitpid(process, &status, 0);
    return status;
  }

  std::filesystem::path path_;
};

TEST_F(PowerLimitTest, IsPutBack) {
  {
    PowerLimit limit(FAKE_NVML);
    limit.open(kAddress, {300, 400}, "--power-limits");
    EXPECT_EQ(now(), 650'000U);
    limit.set(300);
    EXPECT_EQ(now(), 300'000U);
    limit.set(400);
    EXPECT_EQ(now(), 400'000U);
    limit.restore();
    EXPECT_EQ(now(), 650'000U);
    limit.set(300);
  }
  EXPECT_EQ(now(), 650'000U);
}

TEST_F(PowerLimitTest, IsPutBackAfterAnError) {
  const auto fail = [] {
    PowerLimit limit(FAKE_NVML);
    limit.open(kAddress, {300}, "--power-limits");
    limit.set(300);
    throw DataError("something else");
  };
  EXPECT_THROW(fail(), DataError);
  EXPECT_EQ(now(), 650'000U);
}

TEST_F(PowerLimitTest, IsPutBackWhenTheProcessIsKilled) {
  const int status = in_process([](PowerLimit&) { ::raise(SIGKILL); });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(soon(650'000), 650'000U);
}

TEST_F(PowerLimitTest, IsPutBackAfterASecondSignal) {
  const int status = in_process([](PowerLimit&) {
    const StopSignals signals;
    ::raise(SIGINT);   // politely
    ::raise(SIGTERM);  // at once: nothing of this process runs any more
  });
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  EXPECT_EQ(soon(650'000), 650'000U);
}

TEST_F(PowerLimitTest, IsLeftAloneWhenNothingWasSet) {
  {
    PowerLimit limit(FAKE_NVML);
    limit.open(kAddress, {300}, "--power-limits");
    write(500'000);  // someone else
  }
  EXPECT_EQ(now(), 500'000U);
}

TEST_F(PowerLimitTest, IsLeftAloneOnceItWasPutBack) {
  const int status = in_process([this](PowerLimit& limit) {
    limit.restore();
    write(500'000);  // someone else, later
  });
  EXPECT_EQ(WEXITSTATUS(status), 3);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // in which the watcher would set it
  EXPECT_EQ(now(), 500'000U);
}

// A scheduler signals every process of a job, the watcher among them.
TEST_F(PowerLimitTest, IsPutBackAfterSignalsToTheWatcher) {
  constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  const int status = in_process([&](PowerLimit&) {
    pid_t watcher = 0;
    std::ifstream(fmt::format("/proc/self/task/{}/children", ::getpid())) >> watcher;
    if (watcher == 0) std::_Exit(4);
    for (int i = 0; i < 500 && !ignores(watcher, SIGUSR1); ++i)  // it has only just been started
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (::getsid(watcher) == ::getsid(0)) std::_Exit(5);  // signals of the terminal would reach it
    for (const int signal : kSignals) ::kill(watcher, signal);
    ::raise(SIGKILL);
  });
  if (WIFEXITED(status) && WEXITSTATUS(status) == 4) GTEST_SKIP() << "the kernel does not list children";
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(soon(650'000), 650'000U);
}

TEST_F(PowerLimitTest, RefusesWhatTheGpuDoesNotTake) {
  PowerLimit limit(FAKE_NVML);
  EXPECT_THROW(limit.open(kAddress, {400, 800}, "--power-limits"), UsageError);
  EXPECT_THROW(limit.open(kAddress, {100}, "--power-limits"), UsageError);
  EXPECT_THROW(limit.open("", {400}, "--power-limits"), UnavailableError);
  EXPECT_EQ(now(), 650'000U);
}

TEST_F(PowerLimitTest, SaysWhenTheDriverForbidsIt) {
  ::setenv("REDLINE_FAKE_POWER_REFUSED", "1", 1);
  PowerLimit limit(FAKE_NVML);
  try {
    limit.open(kAddress, {400}, "--power-limits");
    FAIL() << "it was allowed";
  } catch (const UnavailableError& error) {
    EXPECT_NE(std::string(error.what()).find("needs root"), std::string::npos) << error.what();
  }
  EXPECT_EQ(now(), 650'000U);
}

}  // namespace
}  // namespace redline::profile
