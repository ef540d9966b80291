// NVML, the management library of NVIDIA's driver: a GPU's current clocks, power and temperature. It is
// loaded at run time and needs no CUDA, so this works in every build and on machines without a driver.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"

namespace redline::profile {

// One reading. What a GPU or its driver does not report is empty.
struct GpuSample {
  std::optional<unsigned> sm_clock_mhz, memory_clock_mhz;
  std::optional<unsigned> power_mw, power_limit_mw;
  std::optional<unsigned> temperature_c;
  std::optional<std::uint64_t> throttle;  // bits; see throttle_text()
  std::optional<unsigned> use_pct,
      memory_use_pct;                        // recent time in which a kernel ran, memory moved
  std::optional<std::uint64_t> memory_used;  // bytes
  std::optional<std::uint64_t> energy_mj;    // since the driver was loaded
};

// What changes slowly or takes a while to read: about once a second.
struct GpuState {
  std::optional<unsigned> max_sm_clock_mhz;    // the highest that the GPU can run at
  std::optional<unsigned> max_power_limit_mw;  // the highest limit that can be set
  std::optional<unsigned> other_processes;     // that also compute on this GPU
};

// Kilobytes per second, over 20 ms.
struct PcieSample {
  std::optional<unsigned> received, sent;
};

// What kind of GPU it is; 0 if unknown.
struct GpuShape {
  int compute_major = 0, compute_minor = 0;
  int processors = 0;  // streaming multiprocessors
};

// Means over a period, for the whole device and in percent of peak. Not per kernel, but no permission is
// needed. What the GPU does not report is empty.
struct GpuAverages {
  double seconds = 0;  // of the period
  std::optional<double> sm_pct, tensor_pct, fp32_pct, fp16_pct, dram_pct;
};
// GPUs count up to a tenth of a second late, so a shorter period would show much of what was before it.
inline constexpr double kShortestAverages = 1;  // seconds

// The power limits that a GPU can be set to, in milliwatts.
struct PowerLimits {
  unsigned lowest = 0, highest = 0, now = 0;
};

// "sw_power_cap|hw_thermal"; "none" if the clocks are as high as requested.
std::string throttle_text(std::uint64_t bits);
inline constexpr std::uint64_t kThrottlePower = 4;  // the power limit: normal under full load
// Heat or a power supply fault: the GPU is slower than others of its kind.
inline constexpr std::uint64_t kThrottleFault = 8 | 32 | 64 | 128;

// One GPU. Calls are safe from any thread.
class Nvml {
 public:
  // The GPU at a PCI address as in Backend::pci_address. Throws UnavailableError, with the reason, if the
  // library or the GPU is missing. Tests pass their own `library`.
  explicit Nvml(const std::string& pci_address, const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string name() const;  // "NVIDIA H200"
  std::string uuid() const;
  std::string driver() const;  // "580.65.06"
  GpuShape shape() const;
  GpuSample read() const;
  GpuState read_state() const;   // for a GPU that this process computes on
  PcieSample read_pcie() const;  // takes 40 ms

  // Throws UnavailableError if the GPU's power limit cannot be set.
  PowerLimits power_limits() const;
  // In milliwatts, within power_limits(). The setting outlives the process. Throws UnavailableError, with the
  // reason, if the driver refuses: it needs root.
  void set_power_limit(unsigned milliwatts) const;

  // Starts a period if the GPU has performance monitoring (Hopper and later); returns whether it does.
  bool begin_averages();
  // Ends it. Empty if none was started.
  std::optional<GpuAverages> end_averages();

 private:
  struct Interface;
  std::string explain(int error) const;

  std::unique_ptr<Interface> calls_;
  void* device_ = nullptr;
  void* averages_begin_ = nullptr;  // a sample of NVML's
  Stopwatch averages_watch_;
};

}  // namespace redline::profile
