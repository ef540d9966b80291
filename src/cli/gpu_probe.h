// What NVIDIA's driver and the system around it say about GPUs, asked with nothing of CUDA linked: this works
// in a build without CUDA and on a machine without a driver.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace redline::cli {

// As the driver numbers them.
enum class ComputeMode { shared = 0, prohibited = 2, exclusive = 3 };

struct GpuDevice {
  std::string name;                               // "NVIDIA H200"; a MIG slice has its profile in it
  std::uint64_t memory_total = 0;                 // bytes
  std::optional<std::uint64_t> memory_free = {};  // of the whole GPU; unknown without the management library
  int compute_major = 0, compute_minor = 0;
  ComputeMode mode = ComputeMode::shared;
};

// Where this program runs, as far as GPUs are concerned.
struct GpuSurroundings {
  bool container = false;
  bool wsl = false;             // Windows Subsystem for Linux
  bool wsl_driver = false;      // with a driver of Windows that this process can be pointed to
  bool kernel_driver = false;   // the kernel has NVIDIA's module, whatever this process sees of it
  std::string visible_devices;  // CUDA_VISIBLE_DEVICES; empty when unset
  bool hides_devices = false;   // it is set
};

struct GpuProbe {
  bool has_driver = false;
  std::string problem;         // why no GPU can be used; empty when devices are listed
  std::string driver_version;  // "580.65.06"; empty when the management library is not there
  int cuda_version = 0;        // the newest CUDA that the driver runs, as it tells it: 13000; 0 when unknown
  bool mig = false;            // a GPU of the machine is divided into slices
  std::vector<GpuDevice> devices;
  GpuSurroundings around;
};

// Never throws; creates no context on any device.
GpuProbe probe_gpus();

}  // namespace redline::cli
