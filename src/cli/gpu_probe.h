// What NVIDIA's driver and the system report about GPUs. Links nothing of CUDA, so it works in a build
// without CUDA and on a machine without a driver.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace redline::cli {

// With the driver's numbers.
enum class ComputeMode { shared = 0, prohibited = 2, exclusive = 3 };

struct GpuDevice {
  std::string name;                               // "NVIDIA H200"; for a MIG slice with its profile
  std::uint64_t memory_total = 0;                 // bytes
  std::optional<std::uint64_t> memory_free = {};  // of the whole GPU; unknown without NVML
  int compute_major = 0, compute_minor = 0;
  ComputeMode mode = ComputeMode::shared;
};

// The environment of this program, as far as GPUs are concerned.
struct GpuSurroundings {
  bool container = false;
  bool wsl = false;             // Windows Subsystem for Linux
  bool wsl_driver = false;      // with a Windows driver that this process can be pointed to
  bool kernel_driver = false;   // NVIDIA's kernel module is loaded, whether or not this process can use it
  std::string visible_devices;  // CUDA_VISIBLE_DEVICES; empty if unset
  bool hides_devices = false;   // CUDA_VISIBLE_DEVICES is set
};

struct GpuProbe {
  bool has_driver = false;
  std::string problem;         // why no GPU can be used; empty if devices are listed
  std::string driver_version;  // "580.65.06"; empty without NVML
  int cuda_version = 0;        // the newest CUDA that the driver supports, as in 13000; 0 if unknown
  bool mig = false;            // a GPU of the machine is split into MIG slices
  std::vector<GpuDevice> devices;
  GpuSurroundings around;
};

// Never throws; creates no context on any device.
GpuProbe probe_gpus();

}  // namespace redline::cli
