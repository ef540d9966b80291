// CUDA's runtime on the CPU: devices, memory and cuBLAS; streams.cpp has streams, events and graphs. Device
// memory is the host's. Only what Redline calls.
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "backend/cuda/kernels/kernels.h"
#include "base/error.h"
#include "device.h"
#include "streams.h"
#include "tensor_core.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
};

namespace redline::emulator {
namespace {

constexpr int kMultiprocessors = 4;  // few, so that a block has several tiles
constexpr int kFirstBus = 0x18;      // of the devices: as the driver's stand-in has it
constexpr std::size_t kAlignment = 1024;

thread_local int current = 0;  // device of a thread

// What was allocated, and of which kind it is.
class Allocations {
 public:
  cudaError_t allocate(void** memory, std::size_t bytes, cudaMemoryType kind) {
    *memory = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
    if (*memory == nullptr) return cudaErrorMemoryAllocation;
    // Numbers that would be seen where something is read before it is written.
    std::memset(*memory, 0xFF, bytes);
    const std::lock_guard lock(mutex_);
    all_[static_cast<std::byte*>(*memory)] = {bytes, kind};
    return cudaSuccess;
  }
  cudaError_t release(void* memory) {
    const std::lock_guard lock(mutex_);
    all_.erase(static_cast<std::byte*>(memory));
    std::free(memory);
    return cudaSuccess;
  }
  cudaMemoryType kind_of(const void* memory) {
    const std::lock_guard lock(mutex_);
    auto next = all_.upper_bound(static_cast<std::byte*>(const_cast<void*>(memory)));
    if (next == all_.begin()) return cudaMemoryTypeUnregistered;
    const auto& [begin, found] = *--next;
    return memory < begin + found.bytes ? found.kind : cudaMemoryTypeUnregistered;
  }

 private:
  struct Found {
    std::size_t bytes;
    cudaMemoryType kind;
  };
  std::mutex mutex_;
  std::map<std::byte*, Found> all_;
};
Allocations& allocations() {
  static Allocations all;
  return all;
}

float element(const void* from, cudaDataType_t type, std::size_t at) {
  switch (type) {
    case CUDA_R_16F:
      return to_float(static_cast<const __half*>(from)[at]);
    case CUDA_R_16BF:
      return to_float(static_cast<const __nv_bfloat16*>(from)[at]);
    default:
      return static_cast<const float*>(from)[at];
  }
}
void put_element(void* to, cudaDataType_t type, std::size_t at, float value) {
  switch (type) {
    case CUDA_R_16F:
      static_cast<__half*>(to)[at] = rounded<__half>(value);
      return;
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(to)[at] = rounded<__nv_bfloat16>(value);
      return;
    default:
      static_cast<float*>(to)[at] = value;
  }
}

}  // namespace

}  // namespace redline::emulator

using namespace redline::emulator;

std::uint64_t redline_emulator_nanoseconds() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

namespace redline::backend::cuda {
// Of the newest kernels that are emulated.
cudaError_t find_code(DeviceCode& code) {
  code = {};
  code.architecture = 90;
  code.hopper = true;
  return cudaSuccess;
}
}  // namespace redline::backend::cuda

extern "C" {

// --- Devices ---

cudaError_t cudaGetDeviceCount(int* count) {
  cuDeviceGetCount(count);
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  int count = 0;
  cudaGetDeviceCount(&count);
  if (device < 0 || device >= count) return cudaErrorInvalidDevice;
  current = device;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* device, int number) {
  *device = {};
  std::strcpy(device->name, "emulated GPU");
  device->major = 9;
  device->multiProcessorCount = kMultiprocessors;
  device->totalGlobalMem = std::size_t{8} << 30;
  device->sharedMemPerBlockOptin = 227 << 10;
  device->sharedMemPerMultiprocessor = 228 << 10;
  device->l2CacheSize = 50 << 20;
  device->pciBusID = kFirstBus + number;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = kMultiprocessors;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 227 << 10;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrConcurrentManagedAccess:
      *value = 1;
      return cudaSuccess;
    default:
      *value = 0;
      return cudaSuccess;
  }
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = *highest = 0;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return failure(); }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? failure_text() : "an error of the emulated runtime";
}
const char* cudaGetErrorName(cudaError_t error) {
  thread_local std::string name;
  return (name = fmt::format("emulated, {}", static_cast<int>(error))).c_str();
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** entry, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  extern CUresult redline_emulator_encode_tiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                                const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  const bool known = std::strcmp(name, "cuTensorMapEncodeTiled") == 0;
  *entry = known ? reinterpret_cast<void*>(&redline_emulator_encode_tiled) : nullptr;
  if (found != nullptr) *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

// --- Memory ---

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return allocations().allocate(memory, bytes, cudaMemoryTypeDevice);
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  return allocations().allocate(memory, bytes, cudaMemoryTypeHost);
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  return cudaMallocHost(memory, bytes);
}
cudaError_t cudaMallocManaged(void** memory, std::size_t bytes, unsigned) {
  return allocations().allocate(memory, bytes, cudaMemoryTypeManaged);
}
// Both wait for whatever runs.
cudaError_t cudaFree(void* memory) {
  drain();
  return allocations().release(memory);
}
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  *attributes = {};
  attributes->type = allocations().kind_of(memory);
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{8} << 30;
  return cudaSuccess;
}
cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, cudaMemLocation, unsigned, cudaStream_t) {
  return cudaSuccess;
}
// As CUDA does with ordinary memory: what is copied from there has been read when the call returns, and what
// is copied to there has arrived.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  const auto is_ordinary = [](const void* memory) {
    return allocations().kind_of(memory) == cudaMemoryTypeUnregistered;
  };
  if (is_ordinary(from)) {
    const auto* begin = static_cast<const std::byte*>(from);
    put(stream,
        [to, staged = std::vector(begin, begin + bytes)] { std::memcpy(to, staged.data(), staged.size()); });
  } else {
    put(
        stream, [=] { std::memcpy(to, from, bytes); }, cudaGraphNodeTypeMemcpy);
  }
  return is_ordinary(to) ? drain(stream) : failure();
}
// A copy of few bytes to the device returns before they are there.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  constexpr std::size_t kFew = std::size_t{64} << 10;
  const cudaError_t result = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return result == cudaSuccess && (kind != cudaMemcpyHostToDevice || bytes > kFew) ? drain(nullptr) : result;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  const cudaGraphNode_t node = put(
      stream, [=] { std::memset(memory, value, bytes); }, cudaGraphNodeTypeMemset);
  if (node != nullptr) node->memset = {memory, bytes, static_cast<unsigned>(value), 1, bytes, 1};
  return failure();
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  return cudaMemsetAsync(memory, value, bytes, nullptr);
}

// --- The driver, of which counters ask ---

CUresult cuGraphKernelNodeGetParams(CUgraphNode, CUDA_KERNEL_NODE_PARAMS*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuKernelGetName(const char**, CUkernel) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuFuncGetName(const char**, CUfunction) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuCtxGetCurrent(CUcontext*) { return CUDA_ERROR_NOT_SUPPORTED; }

// --- cuBLAS ---

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, std::size_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasGetStatusString(cublasStatus_t) { return "an error of the emulator"; }
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                            int n, int k, const void* alpha, const void* a, cudaDataType_t type_a, int lda,
                            const void* b, cudaDataType_t type_b, int ldb, const void* beta, void* c,
                            cudaDataType_t type_c, int ldc, cublasComputeType_t, cublasGemmAlgo_t) {
  const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  put(handle->stream, [=] {
    const auto at = [](cublasOperation_t op, int row, int column, int ld) {
      return static_cast<std::size_t>(op == CUBLAS_OP_N ? row + static_cast<std::int64_t>(column) * ld
                                                        : column + static_cast<std::int64_t>(row) * ld);
    };
    for (int column = 0; column < n; ++column) {
      for (int row = 0; row < m; ++row) {
        float sum = 0.0F;
        for (int i = 0; i < k; ++i)
          sum += element(a, type_a, at(op_a, row, i, lda)) * element(b, type_b, at(op_b, i, column, ldb));
        const std::size_t to = at(CUBLAS_OP_N, row, column, ldc);
        put_element(c, type_c, to, scale * sum + (keep == 0.0F ? 0.0F : keep * element(c, type_c, to)));
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
