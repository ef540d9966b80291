#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {
namespace {

__global__ void probe_kernel() {}

}  // namespace

bool runs_here() {
  cudaFuncAttributes attributes{};
  const bool found = cudaFuncGetAttributes(&attributes, probe_kernel) == cudaSuccess;
  cudaGetLastError();  // a device without code leaves an error behind
  return found;
}

}  // namespace redline::backend::cuda
