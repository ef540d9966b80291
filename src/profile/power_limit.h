// A GPU's power limit, set for a while. The driver keeps what was set after the process has ended, so the
// limit is put back however the process ends: by this class, or, where the process is killed, by a small
// watcher process that notices.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "profile/nvml.h"

namespace redline::profile {

// One thread at a time.
class PowerLimit {
 public:
  // Starts the watcher, so make it before the process has other threads. `library` is another one in tests.
  explicit PowerLimit(std::string library = "libnvidia-ml.so.1");
  ~PowerLimit();  // restores
  PowerLimit(const PowerLimit&) = delete;
  PowerLimit& operator=(const PowerLimit&) = delete;

  // The GPU it is for, and the limits that it will be asked to take. Throws UsageError, naming `flag`, for
  // one that is out of its range, and UnavailableError where there is no such limit or it must not be set;
  // nothing has changed then. Called once.
  void open(const std::string& pci_address, const std::vector<int>& watts, const std::string& flag);
  void set(int watts);
  // Puts back what was there before the first set(). A driver that refuses is a warning that says what to do.
  void restore() noexcept;

 private:
  struct Order;  // to the watcher
  void tell(const Order& order) const;
  [[noreturn]] void watch(int from) const;

  std::string library_, address_;
  std::unique_ptr<Nvml> nvml_;
  unsigned before_ = 0;  // milliwatts; 0: nothing to put back
  int to_watcher_ = -1;
  pid_t watcher_ = -1;
};

}  // namespace redline::profile
