// The order in which an emulated GPU works. What is put on a stream runs later, on a thread of its own: one
// piece at a time, of a stream taken at random among those that have nothing to wait for. A graph's nodes run
// in a random order that its edges allow. So what lacks an event, or a wait of the host, is likely to be
// found.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <vector>

struct CUgraphNode_st {
  cudaGraph_t graph = nullptr;
  cudaGraphNodeType type = cudaGraphNodeTypeKernel;
  std::function<void()> work;
  cudaMemsetParams memset{};                // of a memset
  std::vector<CUgraphNode_st*> after = {};  // the nodes that it waits for
};
struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;  // in the order of capture
};

namespace redline::emulator {

// Puts work on a stream (null: the default one), or into the graph that the stream is being captured into:
// then it is the node that is returned.
cudaGraphNode_t put(cudaStream_t stream, std::function<void()> work,
                    cudaGraphNodeType type = cudaGraphNodeTypeKernel);

// Returns when all streams, or one of them, have nothing left to do.
cudaError_t drain();
cudaError_t drain(cudaStream_t stream);

// What the device failed with, in work that it has done by now: it does nothing from then on.
cudaError_t failure();
const char* failure_text();

}  // namespace redline::emulator
