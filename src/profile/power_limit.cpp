#include "profile/power_limit.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace redline::profile {
namespace {

constexpr double kMilli = 1e-3;

}  // namespace

// A message.
struct PowerLimit::Order {
  char address[64] = {};
  unsigned milliwatts = 0;  // to set when the process is gone; 0: nothing
};

PowerLimit::PowerLimit(std::string library) : library_(std::move(library)) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw IoError("cannot create a pair of sockets: {}", std::generic_category().message(errno));
  watcher_ = ::fork();
  if (watcher_ < 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    throw IoError("cannot start a process: {}", std::generic_category().message(errno));
  }
  if (watcher_ == 0) {
    ::close(ends[1]);
    watch(ends[0]);
  }
  ::close(ends[0]);
  to_watcher_ = ends[1];
}

PowerLimit::~PowerLimit() {
  restore();
  ::close(to_watcher_);
  ::waitpid(watcher_, nullptr, 0);
}

// Reads orders until the other process is gone, for whatever reason, and carries out the last.
void PowerLimit::watch(int from) const {
  ::setsid();  // so that signals of the terminal do not end it
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) ::signal(signal, SIG_IGN);
  Order last, order;
  ssize_t count = 0;
  while ((count = ::read(from, &order, sizeof order)) != 0) {
    if (count == static_cast<ssize_t>(sizeof order)) last = order;
    if (count < 0 && errno != EINTR) break;
  }
  if (last.milliwatts == 0) std::_Exit(0);
  try {
    Nvml(last.address, library_).set_power_limit(last.milliwatts);
    std::_Exit(0);
  } catch (const std::exception&) {
    std::_Exit(1);
  }
}

void PowerLimit::tell(const Order& order) const {
  if (::send(to_watcher_, &order, sizeof order, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof order))
    throw IoError("the process that restores the power limit is gone: {}",
                  std::generic_category().message(errno));
}

void PowerLimit::open(const std::string& pci_address, const std::vector<int>& watts,
                      const std::string& flag) {
  if (pci_address.empty() || pci_address.size() >= sizeof Order{}.address)
    throw UnavailableError("{} needs an NVIDIA GPU", flag);
  auto nvml = std::make_unique<Nvml>(pci_address, library_);
  const PowerLimits limits = nvml->power_limits();
  for (const int value : watts) {
    const double milliwatts = value / kMilli;
    if (milliwatts < limits.lowest || milliwatts > limits.highest)
      throw UsageError("{}: the GPU accepts {:.0f} to {:.0f} W, not {} W", flag, limits.lowest * kMilli,
                       limits.highest * kMilli, value);
  }
  nvml->set_power_limit(limits.now);  // to see whether it may be set at all
  address_ = pci_address;
  nvml_ = std::move(nvml);
}

void PowerLimit::set(int watts) {
  check(nvml_ != nullptr, "a power limit before its GPU is known");
  if (before_ == 0) {
    before_ = nvml_->power_limits().now;
    Order order;
    order.milliwatts = before_;
    std::strncpy(order.address, address_.c_str(), sizeof order.address - 1);
    tell(order);
  }
  nvml_->set_power_limit(static_cast<unsigned>(watts) * 1000);
}

void PowerLimit::restore() noexcept {
  if (before_ == 0) return;
  try {
    nvml_->set_power_limit(before_);
    before_ = 0;
    tell({});
  } catch (const std::exception& error) {
    log_warning("the power limit could not be restored: {}; restore it with: nvidia-smi -pl {:.0f}",
                error.what(), before_ * kMilli);
  }
}

}  // namespace redline::profile
