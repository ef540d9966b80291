// Libraries clear a few bytes before many of their kernels, counters and sums, each by a memset that the
// kernel waits for: some five microseconds in a graph, more than a hundred of them in a step. Where nothing
// else uses that memory earlier in the step, one kernel at its start clears all of it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/device.h"

namespace redline::backend::cuda {

// Watches a capture op by op for the memsets that an op begins with: later ones may clear what it used
// itself.
class FirstClears {
 public:
  // Around the capture of an op; nothing happens when the stream is not being captured.
  void before(cudaStream_t stream);
  void after(cudaStream_t stream);

  // Takes those to zero that lie in `owned` out of the captured graph and puts a kernel for all of them
  // before it. Keep what it returns as long as the graph runs. Null where there are none, or CUDA does not
  // allow it.
  std::shared_ptr<DeviceMemory> gather(cudaGraph_t graph,
                                       std::span<const std::span<const std::byte>> owned) const;

 private:
  std::vector<cudaGraphNode_t> ends_;  // of what was captured before the op
  std::vector<cudaGraphNode_t> memsets_;
};

}  // namespace redline::backend::cuda
