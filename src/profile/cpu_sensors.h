// What the processors do: clock, power and temperature from the kernel's files, where it shows them, and
// hardware counters of this process, where it is allowed to count.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace redline::profile {

// Seconds since the machine started, added up over the processors that this process may use.
struct CpuTimes {
  double busy = 0;    // of every process
  double stolen = 0;  // in which the host of this virtual machine ran something else
  double all = 0;     // idle ones included
};

// One reading. What the machine does not tell is empty. Energy, times and counters only grow.
struct CpuSample {
  std::optional<double> clock_mhz;         // mean over the processors
  std::optional<double> temperature_c;     // of the hottest package
  std::optional<std::uint64_t> energy_uj;  // of all packages, since the first reading
  double cpu_seconds = 0;                  // that this process has used
  std::optional<CpuTimes> times;
  std::uint64_t resident_bytes = 0;                                 // of this process
  std::optional<std::uint64_t> instructions, cycles, cache_misses;  // of this process, while it could count
};

// Where the time of the processors went between two readings, as parts of one.
struct CpuShares {
  double own = 0;     // this process
  double others = 0;  // other processes
  double stolen = 0;
  double idle() const { return 1 - own - others - stolen; }
};
// None when the machine does not tell, or too little time lies between: the kernel counts in hundredths of a
// second.
std::optional<CpuShares> shares_between(const CpuSample& before, const CpuSample& after);

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

enum class Counting { off, on };

// One thread at a time. "The processors that this process may use" are those of the thread that makes it.
class CpuSensors {
 public:
  // `root` is where /proc and /sys are looked for. Hardware counters are for files of samples: without them a
  // reading costs less.
  explicit CpuSensors(std::filesystem::path root = "/", Counting counting = Counting::on);

  CpuSample read();
  // Why no instructions are counted; empty where they are, or are not wanted.
  std::string refusal() const { return counters_ ? counters_->refusal() : std::string(); }

 private:
  // A package's energy counter, which begins again at `range`.
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
