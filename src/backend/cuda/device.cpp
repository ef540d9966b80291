#include "backend/cuda/device.h"

#include <algorithm>
#include <string>

#include "comm/communicator.h"

namespace redline::backend::cuda {

void check_cuda(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  if (result == cudaErrorMemoryAllocation) {
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    cudaGetLastError();  // reset: callers go on to ask what fits
    throw OutOfMemoryError("{}: the GPU is out of memory ({} of {} MiB free)", what, free >> 20, total >> 20);
  }
  // In exclusive mode another process has it; in prohibited mode nobody can.
  if (result == cudaErrorDevicesUnavailable)
    throw UnavailableError(
        "{}: the GPU is busy or unavailable; 'redline doctor' says more, 'nvidia-smi' who uses it", what);
  throw InternalError("{}: {} ({})", what, cudaGetErrorString(result), cudaGetErrorName(result));
}

int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "querying the current device");
  return device;
}

int device_attribute(cudaDeviceAttr attribute) {
  int found = 0;
  check_cuda(cudaDeviceGetAttribute(&found, attribute, current_device()), "querying the device");
  return found;
}

const DeviceCode& device_code() {
  static const DeviceCode found = [] {
    DeviceCode code;
    check_cuda(find_code(code), "looking for the device's code");
    return code;
  }();
  return found;
}
std::size_t block_shared_bytes() {
  constexpr std::size_t kTuring = std::size_t{64} << 10;
  static const auto most =
      static_cast<std::size_t>(device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  return has_ampere_code() ? most : std::min(most, kTuring);
}
int multiprocessors() {
  static const int count = device_attribute(cudaDevAttrMultiProcessorCount);
  return count;
}

std::byte* DeviceSpace::allocate(std::size_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes), "allocating device memory");
  cudaError_t cleared = cudaMemset(memory, 0, bytes);
  if (cleared == cudaSuccess) cleared = cudaStreamSynchronize(cudaStreamLegacy);
  if (cleared != cudaSuccess) cudaFree(memory);
  check_cuda(cleared, "clearing device memory");
  return static_cast<std::byte*>(memory);
}

void DeviceSpace::release(std::byte* memory, std::size_t) noexcept { cudaFree(memory); }

std::byte* PinnedSpace::allocate(std::size_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMallocHost(&memory, bytes), "allocating page-locked memory");
  return static_cast<std::byte*>(memory);
}

void PinnedSpace::release(std::byte* memory, std::size_t) noexcept { cudaFreeHost(memory); }

void upload(std::byte* to, std::span<const std::byte> from) {
  check_cuda(cudaMemcpy(to, from.data(), from.size(), cudaMemcpyHostToDevice), "copying to the device");
  check_cuda(cudaStreamSynchronize(cudaStreamLegacy), "copying to the device");
}

void download(void* to, const void* from, std::size_t bytes) {
  check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "copying to the host");
}

Stream make_stream(bool urgent) {
  cudaStream_t stream = nullptr;
  int lowest = 0, highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "querying stream priorities");
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? highest : lowest),
             "making a stream");
  return Stream(stream);
}

Event make_event(bool timed, bool sleeps) {
  cudaEvent_t event = nullptr;
  const unsigned flags = (timed ? 0U : cudaEventDisableTiming) | (sleeps ? cudaEventBlockingSync : 0U);
  check_cuda(cudaEventCreateWithFlags(&event, flags), "making an event");
  return Event(event);
}

double seconds_between(const Event& begin, const Event& end) {
  float milliseconds = 0.0F;
  check_cuda(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "timing");
  return 1e-3 * static_cast<double>(milliseconds);
}

void record(const Event& event, cudaStream_t stream) {
  check_cuda(cudaEventRecord(event.get(), stream), "marking a stream");
}

Event recorded(cudaStream_t stream) {
  Event event = make_event(false);
  record(event, stream);
  return event;
}

void follow(cudaStream_t stream, const Event& event) {
  check_cuda(cudaStreamWaitEvent(stream, event.get()), "ordering streams");
}
void follow(cudaStream_t stream, cudaStream_t earlier) { follow(stream, recorded(earlier)); }

void copy_async(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "copying to or from the device");
}

void wait_for(const Event& event) { check_cuda(cudaEventSynchronize(event.get()), "waiting for the device"); }
void wait_for(cudaStream_t stream) { check_cuda(cudaStreamSynchronize(stream), "waiting for the device"); }

bool has_come(const Event& event) {
  const cudaError_t state = cudaEventQuery(event.get());
  if (state != cudaErrorNotReady) check_cuda(state, "querying an event");
  return state == cudaSuccess;
}

double DeviceTimer::seconds(cudaStream_t stream, const std::function<void()>& put) const {
  record(begin_, stream);
  put();
  record(end_, stream);
  wait_for(end_);
  check_cuda(cudaGetLastError(), "timing");
  return seconds_between(begin_, end_);
}

Graph capture_graph(cudaStream_t stream, const std::function<void()>& put) {
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "starting a capture");
  cudaGraph_t graph = nullptr;
  try {
    put();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream, &graph), "ending a capture");
  return Graph(graph);
}

std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph) {
  std::size_t count = 0;
  check_cuda(cudaGraphGetNodes(graph, nullptr, &count), "looking at a graph");
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) check_cuda(cudaGraphGetNodes(graph, nodes.data(), &count), "looking at a graph");
  return nodes;
}

GraphExec instantiate(const Graph& graph) {
  cudaGraphExec_t exec = nullptr;
  check_cuda(cudaGraphInstantiate(&exec, graph.get(), 0), "instantiating a graph");
  return GraphExec(exec);
}

int take_device(const comm::Communicator* communicator, std::optional<int> number) {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess || count == 0) {
    throw UnavailableError("no CUDA device can be used ({}): 'redline doctor' says more; or use --device cpu",
                           cudaGetErrorString(result));
  }
  const comm::Neighbours here =
      communicator == nullptr ? comm::Neighbours{0, 1} : comm::neighbours(*communicator);
  if (number && here.count > 1)
    throw UsageError(
        "--device cuda:{} names one GPU for the {} processes of this machine: use --device cuda, and "
        "CUDA_VISIBLE_DEVICES to choose among GPUs",
        *number, here.count);
  if (number && *number >= count)
    throw UnavailableError(
        "--device cuda:{}: this process sees {} (cuda:0{}); CUDA_VISIBLE_DEVICES may hide others", *number,
        count == 1 ? "one GPU" : fmt::format("{} GPUs", count),
        count == 1 ? "" : fmt::format(" to cuda:{}", count - 1));
  // Ranks that share a machine take one each.
  const int chosen = number.value_or(here.index % count);
  check_cuda(cudaSetDevice(chosen), "choosing the device");
  return chosen;
}

void check_architecture(const cudaDeviceProp& device) {
  if (device.major * 10 + device.minor < 75) {
    throw UnavailableError(
        "the {} has compute capability {}.{}; CUDA 13 and its cuDNN support 7.5 (Turing) and "
        "later: use another GPU, or --device cpu",
        device.name, device.major, device.minor);
  }
  DeviceCode code;
  const cudaError_t result = find_code(code);
  if (result != cudaErrorNoKernelImageForDevice && result != cudaErrorInvalidDeviceFunction &&
      result != cudaErrorUnsupportedPtxVersion) {
    // For example the failure of an earlier kernel, which every later call reports.
    check_cuda(result, "looking for the device's code");
    device_code();  // cached now: it cannot be found during a capture
    return;
  }
  // Hopper's matrix instructions are in the code for 90a alone.
  const std::string wanted = fmt::format("{}{}{}", device.major, device.minor, device.major == 9 ? "a" : "");
  throw UnavailableError(
      "the {} has compute capability {}.{}, and this build's CUDA backend has code for {}: build it with "
      "-DCMAKE_CUDA_ARCHITECTURES={}, or use --device cpu",
      device.name, device.major, device.minor, REDLINE_CUDA_ARCHITECTURES, wanted);
}

std::string of_older_code(const cudaDeviceProp& device) {
  const DeviceCode& code = device_code();
  const bool lacks_hopper = device.major == 9 && !code.hopper;
  if (code.architecture == device.major * 10 + device.minor && !lacks_hopper) return {};
  return fmt::format(" (code for {}.{})", code.architecture / 10, code.architecture % 10);
}

Backend::DeviceMemory free_memory() {
  // The driver takes some for the code of kernels when they are first used.
  constexpr std::size_t kCode = std::size_t{256} << 20;
  Backend::DeviceMemory memory;
  check_cuda(cudaMemGetInfo(&memory.free, &memory.total), "querying free device memory");
  memory.free -= std::min(memory.free, kCode);
  return memory;
}

std::size_t overhead_of(const plan::Plan& plan, bool owns_weights) {
  // An estimate: the work space of convolutions and cuBLAS is known only once kernels are chosen.
  constexpr std::size_t kWork = std::size_t{128} << 20;
  std::size_t copies = 0, inputs = 0;
  for (std::size_t i = 0; i < plan.placements.size(); ++i) {
    const graph::Tensor& tensor = plan.graph().tensors()[i];
    const std::size_t bytes = plan.placements[i].region == plan::Region::none ? 0 : plan.placements[i].bytes;
    if (tensor.kind == graph::TensorKind::input) inputs += 2 * bytes;  // staging
    if (tensor.kind == graph::TensorKind::parameter && tensor.shape.rank() > 1 &&
        plan.weights != graph::DType::f32)
      copies += bytes / sizeof(float) * graph::size_of(plan.weights);
  }
  return kWork + inputs + (owns_weights ? copies : 0);
}

}  // namespace redline::backend::cuda
