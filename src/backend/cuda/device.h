// CUDA's C handles and errors in C++ terms.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/owned_memory.h"
#include "base/error.h"
#include "graph/tensor.h"

namespace redline::backend::cuda {

// Throws OutOfMemoryError when the device is out of memory, InternalError for everything else.
void check_cuda(cudaError_t result, const char* what);

struct DeviceSpace {
  static std::byte* allocate(std::size_t bytes);  // of the current device, cleared; throws as check_cuda
  static void release(std::byte* memory, std::size_t bytes) noexcept;
};
using DeviceMemory = OwnedMemory<DeviceSpace>;

struct PinnedSpace {
  static std::byte* allocate(std::size_t bytes);  // page-locked, on the host; throws as check_cuda
  static void release(std::byte* memory, std::size_t bytes) noexcept;
};
using PinnedMemory = OwnedMemory<PinnedSpace>;

// Copies to the device. Returns when the data has arrived: our streams do not wait for the default stream.
void upload(std::byte* to, std::span<const std::byte> from);
// Copies to ordinary memory. Does not wait for our streams, which may still be writing.
void download(void* to, const void* from, std::size_t bytes);

// A copy of `rows` on the device.
template <typename Row>
std::shared_ptr<DeviceMemory> make_table(const std::vector<Row>& rows) {
  auto table = std::make_shared<DeviceMemory>(rows.size() * sizeof(Row));
  upload(table->data(), std::as_bytes(std::span(rows)));
  return table;
}

template <auto kDestroy>
struct Destroy {
  template <typename Handle>
  void operator()(Handle* handle) const {
    kDestroy(handle);
  }
};
using Stream = std::unique_ptr<CUstream_st, Destroy<cudaStreamDestroy>>;
using Event = std::unique_ptr<CUevent_st, Destroy<cudaEventDestroy>>;
using Graph = std::unique_ptr<CUgraph_st, Destroy<cudaGraphDestroy>>;
using GraphExec = std::unique_ptr<CUgraphExec_st, Destroy<cudaGraphExecDestroy>>;

Stream make_stream(bool urgent = false);  // the work of an urgent stream runs first
// With `sleeps`, threads that wait for it sleep instead of spinning: threads that decode need the cores.
Event make_event(bool timed, bool sleeps = false);
double seconds_between(const Event& begin, const Event& end);  // of timed events that are complete

// Times the work that `put` queues on a stream, by the device's clock.
class DeviceTimer {
 public:
  double seconds(cudaStream_t stream, const std::function<void()>& put) const;

 private:
  Event begin_ = make_event(true), end_ = make_event(true);
};

// Queue on a stream: an event; a wait for an event, or for everything queued on another stream so far; a copy
// between any two kinds of memory.
void record(const Event& event, cudaStream_t stream);
Event recorded(cudaStream_t stream);  // a new, untimed event
void follow(cudaStream_t stream, const Event& event);
void follow(cudaStream_t stream, cudaStream_t earlier);
void copy_async(void* to, const void* from, std::size_t bytes, cudaStream_t stream);
// On the host: wait until the device has reached the event, or the end of the stream; or ask whether it has.
void wait_for(const Event& event);
void wait_for(cudaStream_t stream);
bool has_come(const Event& event);

// Captures the work that `put` queues on the stream as a graph; none of it runs.
Graph capture_graph(cudaStream_t stream, const std::function<void()>& put);
std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph);  // in the order of capture
GraphExec instantiate(const Graph& graph);

// A library's constant for a type. Throws InternalError for integer types: no op computes in them.
template <typename Name>
Name name_in_library(graph::DType dtype, Name f32, Name f16, Name bf16) {
  if (dtype == graph::DType::f32) return f32;
  if (dtype == graph::DType::f16) return f16;
  check(dtype == graph::DType::bf16, "the cuda backend does not compute in {}", name_of(dtype));
  return bf16;
}
inline Type type_of(graph::DType dtype) { return name_in_library(dtype, Type::f32, Type::f16, Type::bf16); }

int current_device();
int device_attribute(cudaDeviceAttr attribute);  // of the current device

// Chooses this process's device, makes it current, and returns its number. Without `number`, each rank of
// this machine gets a different device, as long as there are enough. Throws UnavailableError if there is
// none, and UsageError if a number is given although several ranks share the machine.
int take_device(const comm::Communicator* communicator, std::optional<int> number = {});

// Throws UnavailableError, with the option to rebuild with, if this build has no code for the device or CUDA
// 13 no longer supports it. Throws other failures as check_cuda does.
void check_architecture(const cudaDeviceProp& device);
// " (code for 8.0)" if the device runs code compiled for an older one; else empty.
std::string of_older_code(const cudaDeviceProp& device);

// They implement Backend::device_memory and memory_overhead.
Backend::DeviceMemory free_memory();
std::size_t overhead_of(const plan::Plan& plan, bool owns_weights);

}  // namespace redline::backend::cuda
