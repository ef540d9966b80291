#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {
namespace {

__global__ void probe_kernel() {}

}  // namespace

cudaError_t find_code() {
  cudaFuncAttributes attributes{};
  const cudaError_t result = cudaFuncGetAttributes(&attributes, probe_kernel);
  cudaGetLastError();  // a device without code leaves an error behind
  return result;
}

}  // namespace redline::backend::cuda
