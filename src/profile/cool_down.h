// Waits for a device to cool down, so that successive measurements start at the same temperature.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace redline::profile {

class CpuSensors;
class Nvml;

// The temperature of the GPU at a PCI address, or of the hottest CPU package if the address is empty. One
// thread at a time.
class Thermometer {
 public:
  // Throws UnavailableError if it cannot be read on this machine.
  explicit Thermometer(const std::string& pci_address);
  ~Thermometer();
  Thermometer(const Thermometer&) = delete;
  Thermometer& operator=(const Thermometer&) = delete;

  std::optional<double> read();  // °C; empty if this reading failed

 private:
  std::unique_ptr<Nvml> gpu_;
  std::unique_ptr<CpuSensors> cpu_;
};

struct CoolDown {
  double target = 0;           // °C
  double limit_seconds = 900;  // gives up after this
  double poll_seconds = 0.5;
};
enum class Cooled { yes, too_slow, stopped };

// Polls until the temperature is at most the target. `progress` gets every reading.
Cooled wait_until_cool(const std::function<std::optional<double>()>& read, const CoolDown& wanted,
                       const std::atomic<bool>& stop, const std::function<void(double now)>& progress);

}  // namespace redline::profile
