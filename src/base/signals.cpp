#include "base/signals.h"

#include <cerrno>

#include <unistd.h>

#include "base/error.h"

namespace redline {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGUSR1};

// A signal handler can reach nothing but globals; these are written only by it and by StopSignals.
std::atomic<bool> alive{false};
std::atomic<bool> stop{false};
std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "only lock-free atomics are safe in a signal handler");

void handle(int signal) {
  int none = 0;
  if (!received.compare_exchange_strong(none, signal)) ::_exit(128 + signal);
  stop.store(true);
}

}  // namespace

StopSignals::StopSignals() {
  check(!alive.exchange(true), "two StopSignals at a time");
  received = 0;
  stop = false;
  struct sigaction action {};
  action.sa_handler = handle;
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &old_[i]);
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &old_[i], nullptr);
  alive = false;
}

const std::atomic<bool>& StopSignals::flag() const { return stop; }

int StopSignals::signal() const { return received; }

}  // namespace redline
