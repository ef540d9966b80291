#include "profile/cool_down.h"

#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "profile/cpu_sensors.h"
#include "profile/nvml.h"

namespace redline::profile {

Thermometer::Thermometer(const std::string& pci_address) {
  if (!pci_address.empty()) {
    gpu_ = std::make_unique<Nvml>(pci_address);
  } else {
    cpu_ = std::make_unique<CpuSensors>();
  }
  if (!read())
    throw UnavailableError("this machine does not report its {} temperature: leave out --cool-down",
                           gpu_ ? "GPU" : "CPU");
}

Thermometer::~Thermometer() = default;

std::optional<double> Thermometer::read() {
  if (cpu_) return cpu_->read().temperature_c;
  const auto degrees = gpu_->read().temperature_c;
  return degrees ? std::optional<double>(*degrees) : std::nullopt;
}

Cooled wait_until_cool(const std::function<std::optional<double>()>& read, const CoolDown& wanted,
                       const std::atomic<bool>& stop, const std::function<void(double now)>& progress) {
  const Stopwatch watch;
  while (!stop.load(std::memory_order_relaxed)) {
    if (const auto now = read()) {
      progress(*now);
      if (*now <= wanted.target) return Cooled::yes;
    }
    if (watch.seconds() >= wanted.limit_seconds) return Cooled::too_slow;
    std::this_thread::sleep_for(std::chrono::duration<double>(wanted.poll_seconds));
  }
  return Cooled::stopped;
}

}  // namespace redline::profile
