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

// Copies to the device and waits until all is there: no stream of ours waits for the one that copies.
void upload(std::byte* to, std::span<const std::byte> from);
// Copies to ordinary memory, without regard to what streams of ours still write.
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

Stream make_stream(bool urgent = false);  // work on an urgent one goes first where both are ready
// Whoever waits for one that sleeps does so, and does not spin: threads that decode need cores.
Event make_event(bool timed, bool sleeps = false);
double seconds_between(const Event& begin, const Event& end);  // timed ones, both of which have come

// Times what is put on a stream, by the device's clock.
class DeviceTimer {
 public:
  double seconds(cudaStream_t stream, const std::function<void()>& put) const;

 private:
  Event begin_ = make_event(true), end_ = make_event(true);
};

// In the order of a stream: puts an event behind what it holds, makes what comes next follow an event or all
// that another stream holds, and copies, from and to any memory.
void record(const Event& event, cudaStream_t stream);
Event recorded(cudaStream_t stream);  // a new one, untimed
void follow(cudaStream_t stream, const Event& event);
void follow(cudaStream_t stream, cudaStream_t earlier);
void copy_async(void* to, const void* from, std::size_t bytes, cudaStream_t stream);
// The host waits until the device has come there, or asks whether it has.
void wait_for(const Event& event);
void wait_for(cudaStream_t stream);
bool has_come(const Event& event);

// What `put` puts on the stream, as a graph; nothing of it runs.
Graph capture_graph(cudaStream_t stream, const std::function<void()>& put);
std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph);  // in the order of capture
GraphExec instantiate(const Graph& graph);

// What a library calls a type. Throws InternalError for integers, which nothing on the device computes in.
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

// Chooses this process's device, makes it the current one, and gives its number: the one that was asked for,
// or else another for each of the ranks that share a machine, as long as there are some. Throws
// UnavailableError when there is none, UsageError when several ranks of a machine ask for one by number.
int take_device(const comm::Communicator* communicator, std::optional<int> number = {});

// Throws UnavailableError, naming what to rebuild with, when this build has no code for the device, or CUDA
// 13 serves it no more; as check_cuda when it fails otherwise.
void check_architecture(const cudaDeviceProp& device);
// " (code for 8.0)" where the device runs what was compiled for an older one; else empty.
std::string of_older_code(const cudaDeviceProp& device);

// As Backend::device_memory and memory_overhead.
Backend::DeviceMemory free_memory();
std::size_t overhead_of(const plan::Plan& plan, bool owns_weights);

}  // namespace redline::backend::cuda
