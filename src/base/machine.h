// The machine's hardware, and how much of it this process may use: recorded with every run, shown by `redline
// doctor`, and used for default thread counts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace redline {

// Instruction sets that change which kernels run, as the operating system offers them.
struct CpuFeatures {
  bool avx2 = false;
  bool avx512f = false;
  bool avx512_bf16 = false;
  bool avx512_fp16 = false;
  bool amx_bf16 = false;
};

struct Machine {
  std::string hostname;
  std::string os;      // "Debian GNU/Linux 12 (bookworm)"
  std::string kernel;  // "Linux 6.1.0"
  std::string cpu;     // "AMD EPYC 9654"
  CpuFeatures features;
  int cores_total = 0;                 // logical processors of the machine
  int cores_allowed = 0;               // what affinity and the cgroup's quota leave, at least 1
  std::uint64_t memory_total = 0;      // bytes, the cgroup's limit where that is lower
  std::uint64_t memory_available = 0;  // bytes that can be had without swapping
  bool memory_limited = false;         // memory_total is a cgroup's limit
};

// Never fails: what cannot be read is left empty or 0. root is where /proc, /sys and /etc are looked for; the
// process's affinity and host name come from the system itself. May be called from any thread.
Machine inspect_machine(const std::filesystem::path& root = "/");

// "avx2 avx512f avx512_bf16"; "none of note" when there is none.
std::string describe(const CpuFeatures& features);

// The user's cache folder: $XDG_CACHE_HOME/redline, or ~/.cache/redline; empty if neither XDG_CACHE_HOME nor
// HOME is set.
std::string cache_folder();

}  // namespace redline
