#include "backend/cuda/device.h"

namespace redline::backend::cuda {

void check_cuda(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  if (result == cudaErrorMemoryAllocation) {
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw UnavailableError("{}: the GPU is out of memory ({} of {} MiB free): use a smaller --batch-size",
                           what, free >> 20, total >> 20);
  }
  throw InternalError("{}: {} ({})", what, cudaGetErrorString(result), cudaGetErrorName(result));
}

bool launches_early() {
  static const bool can = [] {
    int device = 0, major = 0;
    check_cuda(cudaGetDevice(&device), "asking for the device");
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "asking");
    return major >= 9;
  }();
  return can;
}

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes), "allocating device memory");
  data_ = static_cast<std::byte*>(memory);
  check_cuda(cudaMemset(memory, 0, bytes), "clearing device memory");
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) cudaFree(data_);
}

PinnedMemory::PinnedMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  check_cuda(cudaMallocHost(&memory, bytes), "allocating page-locked memory");
  data_ = static_cast<std::byte*>(memory);
}

PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

Stream make_stream(bool urgent) {
  cudaStream_t stream = nullptr;
  int lowest = 0, highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for stream priorities");
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? highest : lowest),
             "making a stream");
  return Stream(stream);
}

Event make_event(bool timed) {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
             "making an event");
  return Event(event);
}

Type type_of(graph::DType dtype) {
  switch (dtype) {
    case graph::DType::f32:
      return Type::f32;
    case graph::DType::f16:
      return Type::f16;
    case graph::DType::bf16:
      return Type::bf16;
    default:
      throw InternalError("the cuda backend does not compute in {}", name_of(dtype));
  }
}

}  // namespace redline::backend::cuda
