// Merges the memsets of a step's graph. Libraries clear counters and sums before many of their kernels, each
// with a memset of a few bytes that takes about five microseconds, over a hundred times a step. If nothing
// else uses that memory earlier in the step, one kernel at the start of the step clears all of it instead.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/device.h"

namespace redline::backend::cuda {

// Records, during a capture, the memsets that each op begins with. Later ones are left alone, since they may
// clear memory that the op itself has used.
class FirstClears {
 public:
  // Called before and after the capture of each op. Do nothing if the stream is not being captured.
  void before(cudaStream_t stream);
  void after(cudaStream_t stream);

  // Replaces the recorded memsets to zero within `owned` by one kernel at the start of the graph. Returns
  // that kernel's table, which must outlive the graph; null if there are none, or CUDA does not allow the
  // change.
  std::shared_ptr<DeviceMemory> gather(cudaGraph_t graph,
                                       std::span<const std::span<const std::byte>> owned) const;

 private:
  std::vector<cudaGraphNode_t> ends_;  // the last nodes captured before the op
  std::vector<cudaGraphNode_t> memsets_;
};

}  // namespace redline::backend::cuda
