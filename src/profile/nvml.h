// The management library of NVIDIA's driver: what a GPU's clocks, power and temperature are now. It is looked
// up at run time with nothing of CUDA linked, so this works in every build and on machines without a driver.
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
  std::optional<std::uint64_t> throttle;  // bits; throttle_text() says them in words
  std::optional<unsigned> use_pct,
      memory_use_pct;                        // share of the last moments in which a kernel ran, memory moved
  std::optional<std::uint64_t> memory_used;  // bytes
  std::optional<std::uint64_t> energy_mj;    // since the driver was loaded
};

// What changes slowly or takes a while to be asked for: read about once a second.
struct GpuState {
  std::optional<unsigned> max_sm_clock_mhz;    // the highest that the GPU can run at
  std::optional<unsigned> max_power_limit_mw;  // the highest limit that can be set
  std::optional<unsigned> other_processes;     // that compute on this GPU too
};

// Kilobytes a second, over 20 ms.
struct PcieSample {
  std::optional<unsigned> received, sent;
};

// What kind of GPU it is; 0 where it does not say.
struct GpuShape {
  int compute_major = 0, compute_minor = 0;
  int processors = 0;  // streaming multiprocessors
};

// Means over a stretch of time of what the whole device did, in percent of its peak: no kernels, but no
// permission is needed either. What the GPU does not report is empty.
struct GpuAverages {
  double seconds = 0;  // of the stretch
  std::optional<double> sm_pct, tensor_pct, fp32_pct, fp16_pct, dram_pct;
};
// GPUs count up to a tenth of a second late: shorter stretches say much about what was before them, or
// nothing.
inline constexpr double kShortestAverages = 1;  // seconds

// The power limits that a GPU can be set to, in milliwatts.
struct PowerLimits {
  unsigned lowest = 0, highest = 0, now = 0;
};

// "sw_power_cap|hw_thermal"; "none" when the clocks are as high as asked for.
std::string throttle_text(std::uint64_t bits);
inline constexpr std::uint64_t kThrottlePower = 4;  // the power limit: the GPU works as hard as it may
// Heat, or a fault of its power supply: the GPU is slower than another of its kind would be.
inline constexpr std::uint64_t kThrottleFault = 8 | 32 | 64 | 128;

// One GPU. Calls are safe from any thread.
class Nvml {
 public:
  // The GPU at a PCI address as Backend::pci_address gives it. Throws UnavailableError, with why, when the
  // library or the GPU is not there. `library` is another one in tests.
  explicit Nvml(const std::string& pci_address, const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string name() const;  // "NVIDIA H200"
  std::string uuid() const;
  std::string driver() const;  // "580.65.06"
  GpuShape shape() const;
  GpuSample read() const;
  GpuState read_state() const;   // of a GPU that this process computes on
  PcieSample read_pcie() const;  // takes 40 ms

  // Throws UnavailableError when the GPU has no power limit that can be set.
  PowerLimits power_limits() const;
  // In milliwatts, within those. It outlives the process. Throws UnavailableError, with why, when the driver
  // refuses: it takes root.
  void set_power_limit(unsigned milliwatts) const;

  // Begins a stretch, where the GPU has performance monitoring (Hopper and later); whether it does.
  bool begin_averages();
  // Ends it. Empty when none was begun.
  std::optional<GpuAverages> end_averages();

 private:
  struct Interface;
  std::string explain(int error) const;

  std::unique_ptr<Interface> calls_;
  void* device_ = nullptr;
  void* averages_begin_ = nullptr;  // a sample of the library's
  Stopwatch averages_watch_;
};

}  // namespace redline::profile
