#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {
namespace {

__global__ void probe_kernel(DeviceCode* code) {
#ifdef __CUDA_ARCH__
  code->architecture = __CUDA_ARCH__ / 10;
#endif
#ifdef REDLINE_HOPPER
  code->hopper = true;
#endif
}

}  // namespace

cudaError_t find_code(DeviceCode& code) {
  cudaFuncAttributes attributes{};
  cudaError_t result = cudaFuncGetAttributes(&attributes, probe_kernel);
  DeviceCode* found = nullptr;
  if (result == cudaSuccess) result = cudaMalloc(&found, sizeof(DeviceCode));
  if (result == cudaSuccess) {
    code = {};
    result = cudaMemcpy(found, &code, sizeof code, cudaMemcpyHostToDevice);
    if (result == cudaSuccess) {
      probe_kernel<<<1, 1>>>(found);
      result = cudaMemcpy(&code, found, sizeof code, cudaMemcpyDeviceToHost);
    }
    cudaFree(found);
  }
  cudaGetLastError();  // a device without code leaves an error behind
  return result;
}

}  // namespace redline::backend::cuda
