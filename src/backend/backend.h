// The interface between a step's plan and what runs it. A backend answers the planner's questions, holds a
// run's persistent tensors (State), and compiles Plans into Executables.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/input_copy.h"
#include "base/error.h"
#include "base/host_allocator.h"
#include "base/lease.h"
#include "graph/loss_sums.h"
#include "graph/tensor.h"
#include "plan/plan.h"

namespace redline::comm {
class Communicator;
}

namespace redline::backend {

class DeviceImages;  // image_decoder.h
class ImageDecoder;
class Tracer;  // tracer.h

// A snapshot of a State's tensors in host memory. Every take() reuses the memory.
class StateCopy {
 public:
  virtual ~StateCopy() = default;
  // Copies the tensors as they are after all runs so far. May return before the device is done; later runs
  // wait for the copy and are not part of it. Called by the thread that runs steps, while the State exists.
  virtual void take() = 0;
  // One tensor of the last take(), plain order. Any thread, but not during take().
  virtual void read(const std::string& name, std::span<float> values) const = 0;
};

using NamePair = std::pair<std::string, std::string>;

// The persistent tensors of one run (parameters, statistics, momentum, averages), by name, in the backend's
// memory and layout. Executables compiled with the same State share them: a training and an evaluation plan
// see the same weights. Not thread-safe; reads and writes wait for running steps.
class State {
 public:
  virtual ~State() = default;
  virtual std::vector<std::string> names() const = 0;  // in order of creation
  virtual const graph::Tensor& tensor(const std::string& name) const = 0;
  virtual void read(const std::string& name, std::span<float> values) const = 0;  // plain order
  virtual void write(const std::string& name, std::span<const float> values) = 0;
  // Swaps the values of each pair of tensors, of one shape and type, within the backend's memory.
  virtual void swap(std::span<const NamePair> pairs) = 0;
  virtual std::unique_ptr<StateCopy> make_copy() = 0;  // of the tensors that are there now
};

// How long one group of the plan took in a timed run.
struct OpTime {
  int group = 0;  // position in plan.groups
  std::chrono::nanoseconds start{}, duration{};
};

// Thrown by run() of a backend in main memory if DeviceOptions::stop was raised and the run would have taken
// more than a moment longer. Only the loss scale's tensors (TensorKind::scaler) have changed, as after a step
// whose gradients are not finite; the other ranks refuse this step too.
class Abandoned : public Error {
 public:
  Abandoned() : Error(ExitCode::try_again, "a step was abandoned") {}
};

// Which part of a plan to run: forward and backward, the update after them, or both as one unit.
enum class Section { compute, update, step };

// The results of a run: the plan's metrics, its check if the plan has an optimizer, and its times.
struct Metrics {
  using Time = std::chrono::steady_clock::time_point;

  graph::LossSums sums;
  std::array<float, graph::kStepChecks> check{};
  // When the device began and ended the last run(), by its own clock. The duration is as exact as that clock;
  // the position on the host's clock is good to about 20 us.
  Time begin{}, end{};
  std::chrono::nanoseconds exposed{};  // the part of it that was spent waiting for other ranks
};

struct ExecutableMemory {
  std::size_t arena = 0, gradients = 0, state = 0, inputs = 0;
  std::size_t packed_weights = 0;  // copies of weights in the forms that kernels read
  std::size_t scratch = 0;
  std::size_t total() const { return arena + gradients + state + inputs + packed_weights + scratch; }
};

// A plan bound to memory. One thread drives it; run() may return before a device is done, reads wait.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual const plan::Plan& plan() const = 0;
  // Copies an input in: u8 images NHWC, i32 labels, f32 scalars or images in plain order. `bytes` must be the
  // tensor's plain size. With a lease it may return before the device has read `data`: it then holds the
  // lease until the device has, or until the input is written again, which waits for that. Without one,
  // `data` has been read when it returns.
  virtual void write_input(graph::TensorId id, const void* data, std::size_t bytes, Lease lease = {}) = 0;
  // The same for images that this backend's decoder filled. Their memory may be reused after the call.
  virtual void take_images(graph::TensorId, const DeviceImages&) {
    throw InternalError("images in the memory of another device");
  }
  // `times`, when given, is filled with one entry per group run (and slows a device down). Throws Abandoned.
  virtual void run(Section section, std::vector<OpTime>* times = nullptr) = 0;
  // Leaves a step whose run() has not begun, or of which some batches ran: as if run() had thrown Abandoned.
  // The scalars must be written. Only for backends that do not run ahead.
  virtual void refuse() { throw InternalError("a device that runs ahead cannot leave a step"); }
  // Reads a tensor that is still alive when a section ends: metrics, logits, gradients, state. Plain fp32.
  virtual void read(graph::TensorId id, std::span<float> values) const = 0;
  virtual void write(graph::TensorId id, std::span<const float> values) = 0;
  // Requests the metrics of everything run so far. Does not wait for them.
  virtual void request_metrics() = 0;
  // Takes the oldest requested metrics. Empty when none are requested, or when they have not arrived and
  // `wait` is false.
  virtual std::optional<Metrics> take_metrics(bool wait) = 0;
  virtual ExecutableMemory memory() const = 0;
};

class Backend : public plan::Capabilities {
 public:
  virtual std::string name() const = 0;              // "cpu"
  virtual std::string description() const = 0;       // "cpu: oneDNN 2.6.3, AVX-512 BF16, 2 threads"
  virtual bool runs_ahead() const { return false; }  // whether run() returns before a device is done
  // The type of activations in mixed precision on this device; none if no type is faster than fp32.
  virtual std::optional<graph::DType> mixed_precision() const { return {}; }
  virtual bool has_tf32() const { return false; }  // whether DeviceOptions::tf32 does anything
  virtual std::shared_ptr<State> make_state() = 0;
  // Allocates and prepares everything that running needs. Persistent tensors that `state` lacks are added,
  // zero-filled; one with another shape is an InternalError. Executables of one state share the memory for
  // activations and gradients, so compile the one that needs most first. The results of a run stay readable
  // until another executable runs or is compiled.
  virtual std::unique_ptr<Executable> compile(std::shared_ptr<const plan::Plan> plan,
                                              std::shared_ptr<State> state) = 0;
  // Throws UnavailableError, with the reason, if this device cannot decode images.
  virtual std::shared_ptr<ImageDecoder> make_image_decoder() {
    throw UnavailableError("{} cannot decode images", name());
  }

  // Records what the device does, for a timeline. One at a time. Throws UnavailableError, with the reason, if
  // that is not possible.
  virtual std::shared_ptr<Tracer> make_tracer() { throw UnavailableError("{} cannot be traced", name()); }
  // The PCI address of a GPU, "0000:18:00.0"; empty for other devices.
  virtual std::string pci_address() const { return {}; }

  // The current memory of a device with its own memory; empty for a backend that works in main memory.
  struct DeviceMemory {
    std::size_t total = 0, free = 0;
  };
  virtual std::optional<DeviceMemory> device_memory() const { return {}; }
  // Bytes that a compiled plan needs in addition to plan::memory_use: copies of weights in the form that
  // kernels read (only with `owns_weights`), staging and work space.
  virtual std::size_t memory_overhead(const plan::Plan& plan, bool owns_weights) const = 0;
  // The best memory to write inputs from.
  virtual HostAllocator input_allocator() const { return {}; }
};

// How kernels are chosen among candidates (cuda).
enum class Tuning : std::uint8_t {
  start,  // by timing them for a few seconds before the first step; later runs time what is left
  all,    // by timing all of them, however long it takes
  step    // and by then comparing close ones by the time of whole training steps
};

struct DeviceOptions {
  std::string device = "cpu";  // cpu, cuda, reference; auto: cuda where it can be used, else cpu
  int threads = 0;             // 0: all cores this process may use
  bool pin_threads = true;
  bool deterministic = false;  // cuda: only kernels that give the same bits every time
  bool tf32 = false;           // cuda: fp32 products may round their inputs to tf32
  std::string cache_dir = {};  // cuda: where the choice of kernels is remembered; empty for nowhere
  Tuning tuning = Tuning::start;
  double comparing = 120;  // cuda, Tuning::step: seconds for comparing in the step
  int candidate =
      -1;  // cuda, for tests: takes the kernel at this position among its alternatives, or the last
  // Returning true ends the timing of kernels (cuda), and runs (cpu, reference: see Abandoned). Called from
  // any thread.
  std::function<bool()> stop = {};
  std::chrono::milliseconds stop_grace{500};  // a run that ends by itself within this is not abandoned
  // cuda: progress of the kernel choices; called by the thread that compiles.
  std::function<void(std::int64_t made, std::int64_t all)> tuning_progress = {};
  InputCopy input_copy = InputCopy::pinned;  // cuda: how inputs get to the device
  // The ranks that train one model, possibly just this process; empty: nothing is exchanged.
  std::shared_ptr<comm::Communicator> communicator = {};
};

// Throws UnavailableError, with the reason and what to do, if the device is not available.
std::unique_ptr<Backend> make_backend(const DeviceOptions& options);
// The values of --device.
std::vector<std::string> device_names();

}  // namespace redline::backend
