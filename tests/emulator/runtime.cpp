// CUDA's runtime on the CPU: device memory is the host's, and what is put on a stream runs at once, or
// becomes part of the graph that is being captured. Only what Redline calls.
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
#include "tensor_core.h"

struct CUgraph_st {
  std::vector<std::function<void()>> nodes;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> nodes;
};
struct CUevent_st {};
struct CUstream_st {};

namespace redline::emulator {
namespace {

constexpr int kMultiprocessors = 4;  // few, so that a block has several tiles
constexpr std::size_t kAlignment = 1024;

thread_local cudaGraph_t capturing = nullptr;

void put(std::function<void()> work) {
  if (capturing != nullptr)
    capturing->nodes.push_back(std::move(work));
  else
    work();
}

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

void launch(const Grid& grid, cudaStream_t, std::function<void()> thread) {
  put([grid, thread = std::move(thread)] { run_grid(grid, thread); });
}

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
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* device, int) {
  *device = {};
  std::strcpy(device->name, "emulated GPU");
  device->major = 9;
  device->multiProcessorCount = kMultiprocessors;
  device->totalGlobalMem = std::size_t{8} << 30;
  device->sharedMemPerBlockOptin = 227 << 10;
  device->sharedMemPerMultiprocessor = 228 << 10;
  device->l2CacheSize = 50 << 20;
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
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error of the emulator"; }
const char* cudaGetErrorName(cudaError_t) { return "emulator"; }
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
cudaError_t cudaFree(void* memory) { return allocations().release(memory); }
cudaError_t cudaFreeHost(void* memory) { return allocations().release(memory); }
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
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  put([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t) {
  put([=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}

// --- Streams, events ---

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
// Less every time: of several candidates the last is taken, where a deterministic run takes the first.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  static float next = 1e6F;
  *milliseconds = next *= 0.999F;
  return cudaSuccess;
}

// --- Graphs: what was captured, in that order. Their nodes cannot be looked at. ---

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  capturing = new CUgraph_st;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = std::exchange(capturing, nullptr);
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long*,
                                     cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**,
                                     std::size_t* count) {
  *status = cudaStreamCaptureStatusNone;
  if (count != nullptr) *count = 0;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  for (const auto& node : exec->nodes) node();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, std::size_t* count) {
  *count = 0;
  return cudaSuccess;
}
cudaError_t cudaGraphGetRootNodes(cudaGraph_t, cudaGraphNode_t*, std::size_t* count) {
  *count = 0;
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t, cudaGraphNodeType*) { return cudaErrorNotSupported; }
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*,
                                         std::size_t*) {
  return cudaErrorNotSupported;
}
cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*,
                                           std::size_t*) {
  return cudaErrorNotSupported;
}
cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t, cudaMemsetParams*) { return cudaErrorNotSupported; }
cudaError_t cudaGraphAddDependencies(cudaGraph_t, const cudaGraphNode_t*, const cudaGraphNode_t*,
                                     const cudaGraphEdgeData*, std::size_t) {
  return cudaErrorNotSupported;
}
cudaError_t cudaGraphDestroyNode(cudaGraphNode_t) { return cudaErrorNotSupported; }
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, std::size_t,
                                   const cudaKernelNodeParams*) {
  return cudaErrorNotSupported;
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
  *handle = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetStream_v2(cublasHandle_t, cudaStream_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, std::size_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasGetStatusString(cublasStatus_t) { return "an error of the emulator"; }
cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                            int k, const void* alpha, const void* a, cudaDataType_t type_a, int lda,
                            const void* b, cudaDataType_t type_b, int ldb, const void* beta, void* c,
                            cudaDataType_t type_c, int ldc, cublasComputeType_t, cublasGemmAlgo_t) {
  const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  put([=] {
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
