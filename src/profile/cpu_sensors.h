// What the processors do: clock, power and temperature from the kernel's files, where it shows them, and
// hardware counters of this process, where it is allowed to count.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace redline::profile {

// One reading. What the machine does not tell is empty. Energy and counters only grow.
struct CpuSample {
  std::optional<double> clock_mhz;         // mean over the processors
  std::optional<double> temperature_c;     // of the hottest package
  std::optional<std::uint64_t> energy_uj;  // of all packages, since the first reading
  double cpu_seconds = 0;                  // that this process has used
  std::uint64_t resident_bytes = 0;        // of this process
  std::optional<std::uint64_t> instructions, cycles, cache_misses;  // of this process, while it could count
};

// Counts instructions, cycles and cache misses of the threads that run now and of those they start.
class HardwareCounters {
 public:
  HardwareCounters();  // never throws: refusal() says why nothing is counted
  ~HardwareCounters();
  HardwareCounters(const HardwareCounters&) = delete;
  HardwareCounters& operator=(const HardwareCounters&) = delete;

  // Empty when counting works; else the setting or the reason.
  const std::string& refusal() const { return refusal_; }
  void read(CpuSample& sample) const;

 private:
  std::vector<int> instructions_, cycles_, misses_;  // descriptors, one a thread
  std::string refusal_;
};

// One thread at a time.
class CpuSensors {
 public:
  // `root` is where /proc and /sys are looked for.
  explicit CpuSensors(std::filesystem::path root = "/");

  CpuSample read();
  const HardwareCounters& counters() const { return counters_; }

 private:
  // A package's energy counter, which begins again at `range`.
  struct Energy {
    std::filesystem::path file;
    std::uint64_t range = 0, last = 0;
  };
  std::optional<double> clock() const;

  std::filesystem::path root_;
  std::vector<std::filesystem::path> clocks_, temperatures_;
  std::vector<Energy> energies_;
  std::uint64_t energy_uj_ = 0;
  HardwareCounters counters_;
};

}  // namespace redline::profile
