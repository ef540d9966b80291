#include "cli/long_work.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "base/log.h"
#include "base/signals.h"
#include "cli/command.h"
#include "cli/progress_line.h"

namespace redline::cli {
namespace {

int say_stopped(const LongWork& about, ProgressLine& line, const StopSignals& signals) {
  line.clear();
  print_stderr("redline: stopped; {}\n", about.afterwards);
  return kSignalExit + signals.signal();
}

// Ends the process if the work goes on after a signal.
class Patience {
 public:
  Patience(const LongWork& about, ProgressLine& line, const StopSignals& signals)
      : about_(about), line_(line), signals_(signals), thread_([this] { watch(); }) {}
  ~Patience() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    ended_.notify_all();
    thread_.join();
  }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

 private:
  void watch() {
    constexpr auto kEvery = std::chrono::milliseconds(50), kMost = std::chrono::milliseconds(1000);
    std::unique_lock lock(mutex_);
    const auto over = [this] { return over_; };
    while (!signals_.requested())
      if (ended_.wait_for(lock, kEvery, over)) return;
    if (!ended_.wait_for(lock, kMost, over)) ::_exit(say_stopped(about_, line_, signals_));
  }

  const LongWork& about_;
  ProgressLine& line_;
  const StopSignals& signals_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace

int run_with_progress(const LongWork& about, const std::function<void(const data::Progress&)>& work) {
  const StopSignals signals;
  ProgressLine line(about.what, about.unit);
  try {
    std::optional<Patience> patience;
    if (about.may_be_killed) patience.emplace(about, line, signals);
    work([&](std::int64_t done, std::int64_t total) {
      if (total > 0) line.update(done, total);  // else it only asks whether to stop
      return !signals.requested();
    });
  } catch (const data::Stopped&) {
    return say_stopped(about, line, signals);
  }
  line.clear();
  return 0;
}

}  // namespace redline::cli
