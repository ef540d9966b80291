// Sets a GPU's power limit for a while. The driver keeps the setting after the process ends, so the limit is
// restored however that happens: by this class, or by a small watcher process if this one is killed.
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
  // Starts the watcher, so construct it before other threads start. Tests pass their own `library`.
  explicit PowerLimit(std::string library = "libnvidia-ml.so.1");
  ~PowerLimit();  // restores
  PowerLimit(const PowerLimit&) = delete;
  PowerLimit& operator=(const PowerLimit&) = delete;

  // Selects the GPU and checks the limits that will be set. Throws UsageError, naming `flag`, if one is out
  // of range, and UnavailableError if the GPU has no power limit or may not set it; nothing has changed then.
  // Call once.
  void open(const std::string& pci_address, const std::vector<int>& watts, const std::string& flag);
  void set(int watts);
  // Restores the limit from before the first set(). If the driver refuses, warns and says what to do.
  void restore() noexcept;

 private:
  struct Order;  // to the watcher
  void tell(const Order& order) const;
  [[noreturn]] void watch(int from) const;

  std::string library_, address_;
  std::unique_ptr<Nvml> nvml_;
  unsigned before_ = 0;  // milliwatts; 0: nothing to restore
  int to_watcher_ = -1;
  pid_t watcher_ = -1;
};

}  // namespace redline::profile
