// Clocks, power, temperature and use of a run's devices, sampled by a separate thread and written to a CSV
// file as they come (docs/profiling.md lists the columns). Memory use does not grow with the run.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/append_file.h"
#include "profile/cpu_sensors.h"
#include "profile/nvml.h"

namespace redline::profile {

struct TelemetrySample {
  std::chrono::steady_clock::time_point time{};
  double unix_seconds = 0;       // the same moment on the wall clock
  double seconds = 0;            // since sampling began
  std::optional<GpuSample> gpu;  // empty without one
  GpuState gpu_state;            // read once a second
  PcieSample pcie;               // the same, if samples are written
  CpuSample cpu;
  std::optional<CpuShares> cpu_shares;  // over the last second or more
  std::optional<double> cpu_power_w;    // since the previous sample
  double cpu_use = 0;                   // processors that this process kept busy since the previous sample
};

// Where samples were taken. Each process of a run has its own file.
struct TelemetrySource {
  int rank = 0;
  std::string host;    // name of the machine
  std::string device;  // the GPU's PCI address, or "cpu"
};

// One line with its line end. Unknown fields are empty.
std::string telemetry_header();
std::string telemetry_row(const TelemetrySample& sample, const TelemetrySource& source);

// A summary of samples. Means are over samples that have the value.
struct TelemetrySummary {
  std::int64_t samples = 0;
  double seconds = 0;  // from the first to the last
  std::optional<double> sm_clock_mhz, memory_clock_mhz, power_w, power_limit_w, use_pct, cpu_clock_mhz,
      cpu_use;
  std::optional<double> max_sm_clock_mhz;   // that the GPU can run at
  std::optional<double> max_power_limit_w;  // that can be set
  std::optional<double> temperature_c;      // the highest: of the GPU, or of the CPU without one
  std::optional<double> joules;  // by energy counters: of the GPU, or of the CPU's packages without one
  std::uint64_t throttle = 0;    // every reason that occurred
  double power_capped = 0;       // fraction of samples in which the power limit lowered the clock
  double faulted = 0;            // fraction in which heat or the power supply did (kThrottleFault)
  std::optional<CpuShares> cpu;  // from the first to the last
  std::optional<unsigned> other_processes;  // on the GPU: the most at once
};

// Accumulates samples.
class TelemetrySums {
 public:
  void add(const TelemetrySample& sample);
  TelemetrySummary summary() const;

 private:
  struct Mean {
    double sum = 0;
    std::int64_t count = 0;
    void add(double value) { sum += value, ++count; }
    std::optional<double> value() const {
      return count > 0 ? std::optional(sum / static_cast<double>(count)) : std::nullopt;
    }
  };
  Mean sm_clock_, memory_clock_, power_, limit_, use_, cpu_clock_, cpu_use_, capped_, faulted_;
  TelemetrySummary sums_;
  std::optional<TelemetrySample> first_, last_;
};

// "off", "50ms", "0.5s", "2s"; 0 for off. Throws UsageError naming `flag`.
std::chrono::milliseconds parse_sampling(const std::string& text, const std::string& flag);

struct TelemetryOptions {
  std::chrono::milliseconds interval{50};
  std::filesystem::path file;  // appended to if it exists; empty: nothing is written
  std::string pci_address;     // of the GPU; empty: no GPU is read
  TelemetrySource source;      // written to the file
  std::size_t keep = 0;        // number of newest samples that samples() returns
  std::string nvml = "libnvidia-ml.so.1";
  std::filesystem::path root = "/";  // of /proc and /sys
};

class Telemetry {
 public:
  // Starts sampling. Warns if the GPU cannot be read; throws IoError if the file cannot be created.
  explicit Telemetry(TelemetryOptions options);
  ~Telemetry();  // takes a last sample
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  // From any thread.
  std::optional<TelemetrySample> latest() const;  // empty before the first
  std::vector<TelemetrySample> samples() const;   // oldest first
  void restart();                                 // starts a window, with a sample taken now
  TelemetrySummary summary();                     // of the window; ends with a sample taken now
  TelemetrySummary whole();                       // the same from the first sample on
  Nvml* gpu() const { return nvml_.get(); }       // null without one

 private:
  void run();
  void sample();  // lock_ is held
  void write(const TelemetrySample& now);

  TelemetryOptions options_;
  std::unique_ptr<Nvml> nvml_;
  CpuSensors cpu_;
  std::unique_ptr<AppendFile> file_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point slow_read_{};  // of the values read once a second

  mutable std::mutex lock_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::optional<TelemetrySample> latest_;
  std::deque<TelemetrySample> kept_;
  // As last read.
  PcieSample pcie_;
  GpuState gpu_state_;
  std::optional<CpuShares> cpu_shares_;
  std::optional<CpuSample> shares_begin_;
  TelemetrySums window_, whole_;

  std::thread thread_;  // last: it uses all of the above
};

// "GPU 97%  1980 MHz  412 W", for the live line; empty without a GPU.
std::string live_text(const std::optional<TelemetrySample>& sample);

}  // namespace redline::profile
