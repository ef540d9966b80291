// Waiting for a device to be as cool as it was, so that measurements that follow each other start alike.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace redline::profile {

class CpuSensors;
class Nvml;

// The temperature of what trains: of the GPU at a PCI address, or of the CPU's hottest package for an empty
// one. One thread at a time.
class Thermometer {
 public:
  // Throws UnavailableError when it cannot be read here.
  explicit Thermometer(const std::string& pci_address);
  ~Thermometer();
  Thermometer(const Thermometer&) = delete;
  Thermometer& operator=(const Thermometer&) = delete;

  std::optional<double> read();  // °C; none when it was not told this time

 private:
  std::unique_ptr<Nvml> gpu_;
  std::unique_ptr<CpuSensors> cpu_;
};

struct CoolDown {
  double target = 0;           // °C
  double limit_seconds = 900;  // then it goes on as it is
  double poll_seconds = 0.5;
};
enum class Cooled { yes, too_slow, stopped };

// Reads until the temperature is at most the target. `progress` is told every reading.
Cooled wait_until_cool(const std::function<std::optional<double>()>& read, const CoolDown& wanted,
                       const std::atomic<bool>& stop, const std::function<void(double now)>& progress);

}  // namespace redline::profile
