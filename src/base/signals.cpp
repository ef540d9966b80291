#include "base/signals.h"

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"

namespace redline {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGUSR1, SIGHUP};

// A signal handler can reach nothing but globals; these are written only by it and by StopSignals.
std::atomic<bool> alive{false};
std::atomic<bool> stop{false};
std::atomic<bool> at_once{false}, start_again{false};
std::atomic<int> received{0};
std::atomic<std::int64_t> received_at{0};  // milliseconds
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free &&
                  std::atomic<std::int64_t>::is_always_lock_free,
              "only lock-free atomics are safe in a signal handler");

// Where output goes once its terminal is closed, and which of stdout and stderr are a terminal.
std::atomic<int> nowhere{-1};
std::atomic<bool> out_is_terminal{false}, err_is_terminal{false};

void leave_terminal() {
  const int before = errno;
  if (out_is_terminal) ::dup2(nowhere, STDOUT_FILENO);
  if (err_is_terminal) ::dup2(nowhere, STDERR_FILENO);
  errno = before;
}

std::int64_t milliseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{1000} * now.tv_sec + now.tv_nsec / 1'000'000;
}

[[noreturn]] void leave(int signal) {
  constexpr std::string_view kWords = "redline: stopped by a signal while setting up\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kWords.data(), kWords.size());
  ::_exit(start_again && signal != SIGINT ? static_cast<int>(ExitCode::try_again) : 128 + signal);
}

void handle(int signal) {
  constexpr std::int64_t kAtOnce = 250;  // faster than a person presses Ctrl-C twice
  if (signal == SIGHUP) leave_terminal();
  if (at_once) leave(signal);
  int first = 0;
  if (!received.compare_exchange_strong(first, signal)) {
    const std::int64_t at = received_at;  // 0: another thread is about to write it
    if (signal == SIGHUP || (signal == first && (at == 0 || milliseconds() - at < kAtOnce))) return;
    ::_exit(128 + signal);
  }
  received_at = milliseconds();
  stop.store(true);
}

}  // namespace

StopSignals::StopSignals() {
  check(!alive.exchange(true), "two StopSignals at a time");
  received = 0;
  received_at = 0;
  stop = at_once = false;
  struct sigaction action {};
  action.sa_handler = handle;
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  out_is_terminal = nowhere >= 0 && ::isatty(STDOUT_FILENO) == 1;
  err_is_terminal = nowhere >= 0 && ::isatty(STDERR_FILENO) == 1;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &old_[i]);
    const bool ignored = kSignals[i] == SIGHUP && old_[i].sa_handler == SIG_IGN;
    if (!ignored) ::sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &old_[i], nullptr);
  if (const int fd = nowhere.exchange(-1); fd >= 0) ::close(fd);
  alive = false;
}

const std::atomic<bool>& StopSignals::flag() const { return stop; }

int StopSignals::signal() const { return received; }

void StopSignals::end_at_once(bool yes, bool again) {
  start_again = again;
  at_once = yes;
  if (yes && received != 0) leave(received);  // it came before it could be said
}

void outlive_readers() { ::signal(SIGPIPE, SIG_IGN); }

}  // namespace redline
