// Which NVIDIA GPUs the driver offers, asked of the driver itself with nothing of CUDA linked: this works in
// a build without CUDA and on a machine without a driver.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace redline::cli {

struct GpuDevice {
  std::string name;                // "NVIDIA H200"
  std::uint64_t memory_total = 0;  // bytes
  int compute_major = 0, compute_minor = 0;
};

struct GpuProbe {
  bool has_driver = false;
  std::string problem;         // why no GPU can be used; empty when devices are listed
  std::string driver_version;  // "580.65.06"; empty when the management library is not there
  std::string cuda_version;    // the newest CUDA that the driver runs: "13.0"
  std::vector<GpuDevice> devices;
};

// Never throws; creates no context on any device.
GpuProbe probe_gpus();

}  // namespace redline::cli
