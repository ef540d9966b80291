// Clock, power and temperature of the processors, from the kernel's files as far as available, and hardware
// counters of this process, where counting is permitted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace redline::profile {

// Seconds since boot, summed over the processors that this process may use.
struct CpuTimes {
  double busy = 0;    // by all processes
  double stolen = 0;  // taken by the host of this virtual machine
  double all = 0;     // idle time included
};

// One reading. What the machine does not report is empty. Energy, times and counters only grow.
struct CpuSample {
  std::optional<double> clock_mhz;         // mean over the processors
  std::optional<double> temperature_c;     // of the hottest package
  std::optional<std::uint64_t> energy_uj;  // of all packages, since the first reading
  double cpu_seconds = 0;                  // used by this process
  std::optional<CpuTimes> times;
  std::uint64_t resident_bytes = 0;                                 // of this process
  std::optional<std::uint64_t> instructions, cycles, cache_misses;  // of this process, if permitted
};

// How processor time was spent between two readings, as fractions.
struct CpuShares {
  double own = 0;     // this process
  double others = 0;  // other processes
  double stolen = 0;
  double idle() const { return 1 - own - others - stolen; }
};
// Empty if the machine does not report it, or if too little time lies between: the kernel counts in
// hundredths of a second.
std::optional<CpuShares> shares_between(const CpuSample& before, const CpuSample& after);

// Counts instructions, cycles and cache misses of the current threads and of those they start.
class HardwareCounters {
 public:
  HardwareCounters();  // never throws; refusal() says why nothing is counted
  ~HardwareCounters();
  HardwareCounters(const HardwareCounters&) = delete;
  HardwareCounters& operator=(const HardwareCounters&) = delete;

  // Empty if counting works, else the reason.
  const std::string& refusal() const { return refusal_; }
  void read(CpuSample& sample) const;

 private:
  std::vector<int> instructions_, cycles_, misses_;  // file descriptors, one per thread
  std::string refusal_;
};

enum class Counting { off, on };

// One thread at a time. "The processors that this process may use" are those of the constructing thread.
class CpuSensors {
 public:
  // /proc and /sys are looked up under `root`. Readings are cheaper without hardware counters.
  explicit CpuSensors(std::filesystem::path root = "/", Counting counting = Counting::on);

  CpuSample read();
  // Why no instructions are counted; empty if they are, or are not wanted.
  std::string refusal() const { return counters_ ? counters_->refusal() : std::string(); }

 private:
  // A package's energy counter, which wraps at `range`.
  struct Energy {
    std::filesystem::path file;
    std::uint64_t range = 0, last = 0;
  };
  std::optional<double> clock() const;
  std::optional<CpuTimes> times() const;

  std::filesystem::path root_;
  std::vector<std::filesystem::path> clocks_, temperatures_;
  std::vector<Energy> energies_;
  std::uint64_t energy_uj_ = 0;
  std::vector<bool> allowed_;                   // by processor
  std::unique_ptr<HardwareCounters> counters_;  // null: none
};

}  // namespace redline::profile
