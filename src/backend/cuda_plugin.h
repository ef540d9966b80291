// Loads the CUDA backend, a separate shared library, if this machine has a driver for it.
#pragma once

#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "backend/memory_study.h"
#include "base/error.h"
#include "comm/exchange.h"

namespace redline::backend {

// Throws UnavailableError, with what is missing and what to do, when the backend cannot run here.
std::unique_ptr<Backend> load_cuda_backend(const DeviceOptions& options);

// Methods of moving bytes to, from and within a GPU. Throws as load_cuda_backend does.
std::shared_ptr<MemoryStudy> load_cuda_memory_study(const DeviceOptions& options);

struct FabricOptions {
  std::shared_ptr<comm::Communicator> communicator;  // of more than one rank
  std::string topology;  // a file for NCCL's view of the machine, from rank 0; its rings and trees go to
                         // <topology>.graphs. Empty: none
};

// NCCL between GPUs, for benchmarks; every rank calls it at the same time. Throws as load_cuda_backend does.
std::unique_ptr<comm::Fabric> load_cuda_fabric(const FabricOptions& options);

// The number of the GPU in --device, among those visible to this process: 1 for "cuda:1"; none for "cuda" and
// all other devices. Throws UsageError if there is no number after the colon.
inline std::optional<int> gpu_number(std::string_view device) {
  constexpr std::string_view kPrefix = "cuda:";
  if (!device.starts_with(kPrefix)) return {};
  int number = -1;
  const char* end = device.data() + device.size();
  const auto [stop, error] = std::from_chars(device.data() + kPrefix.size(), end, number);
  if (error != std::errc() || stop != end || number < 0)
    throw UsageError("unknown device '{}': a GPU is named by its number, as cuda:0", device);
  return number;
}

// Whether an NVIDIA driver is installed.
bool has_cuda_driver();

// Why load_cuda_backend would fail before it looks for a device; empty if driver and plugin exist.
std::string why_no_cuda();

}  // namespace redline::backend
