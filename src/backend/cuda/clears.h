// Libraries clear a few bytes before many of their kernels, counters and sums, each by a memset that the
// kernel waits for: some five microseconds in a graph, hundreds of them in a step. Where nothing else uses
// that memory earlier in the step, one kernel at its start clears all of it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>

#include "backend/cuda/device.h"

namespace redline::backend::cuda {

struct MemorySpan {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
};

// Takes the memsets to zero that lie in `owned` out of a captured graph and puts a kernel for all of them
// before it. Keep what it returns as long as the graph runs.
std::shared_ptr<DeviceMemory> gather_clears(cudaGraph_t graph, std::span<const MemorySpan> owned);

}  // namespace redline::backend::cuda
