#include "streams.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "device.h"

namespace redline::emulator {
namespace {

// How often an event has been recorded. Work on streams may outlive the event itself.
struct Ticks {
  std::uint64_t asked = 0, done = 0;
};

struct Piece {
  std::function<void()> work;  // null for one that only waits
  std::shared_ptr<Ticks> event;
  std::uint64_t tick = 0;  // that is waited for, or recorded where `records`
  bool records = false;
};

// The pieces of a stream; it goes on when the stream itself is destroyed.
struct Queue {
  std::deque<Piece> pieces;
  bool running = false;
  bool empty() const { return pieces.empty() && !running; }
};

class Device {
 public:
  // Never destroyed: the thread may be at work when the process ends.
  static Device& get() {
    static Device& device = *new Device;
    return device;
  }

  std::shared_ptr<Queue> make_queue() {
    const std::lock_guard lock(mutex_);
    std::erase_if(queues_, [](const auto& queue) { return queue.use_count() == 1 && queue->empty(); });
    return queues_.emplace_back(std::make_shared<Queue>());
  }
  void add(Queue& queue, Piece piece) {
    const std::lock_guard lock(mutex_);
    if (piece.event != nullptr) piece.tick = piece.records ? ++piece.event->asked : piece.event->asked;
    queue.pieces.push_back(std::move(piece));
    changed_.notify_all();
  }
  template <typename Done>
  void wait(const Done& done) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, done);
  }
  void drain() {
    wait([this] { return std::ranges::all_of(queues_, [](const auto& queue) { return queue->empty(); }); });
  }
  template <typename Answer>
  auto ask(const Answer& answer) {
    const std::lock_guard lock(mutex_);
    return answer();
  }
  const std::string& failed_with() {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  std::mt19937 random{1};  // of the thread that works

 private:
  Device() {
    std::thread([this] { work(); }).detach();
  }

  // mutex_ is held. A stream whose first piece can run; null without one.
  std::shared_ptr<Queue> choose() {
    std::vector<std::shared_ptr<Queue>> ready;
    for (const auto& queue : queues_) {
      if (queue->pieces.empty()) continue;
      const Piece& next = queue->pieces.front();
      if (next.event == nullptr || next.records || next.event->done >= next.tick) ready.push_back(queue);
    }
    return ready.empty() ? nullptr : ready[random() % ready.size()];
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      std::shared_ptr<Queue> queue;
      changed_.wait(lock, [&] { return (queue = choose()) != nullptr; });
      Piece piece = std::move(queue->pieces.front());
      queue->pieces.pop_front();
      queue->running = true;
      if (piece.work && failure_.empty()) {
        lock.unlock();
        std::string error;
        try {
          piece.work();
        } catch (const std::exception& what) {
          error = what.what();
        }
        piece.work = nullptr;  // what it holds is destroyed here
        lock.lock();
        if (!error.empty()) failure_ = error;
      }
      if (piece.records) piece.event->done = std::max(piece.event->done, piece.tick);
      queue->running = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Queue>> queues_;
  std::string failure_;  // set once
};

}  // namespace
}  // namespace redline::emulator

using namespace redline::emulator;

struct Capture {
  cudaGraph_t graph = nullptr;        // null once it has ended
  std::vector<cudaStream_t> streams;  // that take part
};
struct CUstream_st {
  std::shared_ptr<Queue> queue = Device::get().make_queue();
  std::shared_ptr<Capture> capture;     // null while it is not captured
  std::vector<cudaGraphNode_t> ends{};  // which the next node waits for
};
struct CUevent_st {
  std::shared_ptr<Ticks> ticks = std::make_shared<Ticks>();
  std::shared_ptr<Capture> capture;  // that the last record was part of
  std::vector<cudaGraphNode_t> ends{};
};
struct CUgraphExec_st {
  struct Node {
    std::function<void()> work;
    std::vector<std::size_t> after;
  };
  std::shared_ptr<const std::vector<Node>> nodes;
};

namespace redline::emulator {
namespace {

CUstream_st& stream_of(cudaStream_t stream) {
  static CUstream_st& legacy = *new CUstream_st;
  return stream == nullptr || stream == cudaStreamLegacy ? legacy : *stream;
}

thread_local bool capturing = false;

void join(CUstream_st& stream, const CUevent_st& event) {
  if (stream.capture == nullptr) event.capture->streams.push_back(&stream);
  stream.capture = event.capture;
  for (cudaGraphNode_t end : event.ends) {
    if (std::ranges::count(stream.ends, end) == 0) stream.ends.push_back(end);
  }
}

// Whether each node is waited for by one of `ends`, if by way of others.
bool all_joined(const CUgraph_st& graph, std::vector<cudaGraphNode_t> ends) {
  std::vector<cudaGraphNode_t> seen;
  while (!ends.empty()) {
    cudaGraphNode_t node = ends.back();
    ends.pop_back();
    if (std::ranges::count(seen, node) > 0) continue;
    seen.push_back(node);
    ends.insert(ends.end(), node->after.begin(), node->after.end());
  }
  return seen.size() == graph.nodes.size();
}

void run_nodes(const std::vector<CUgraphExec_st::Node>& nodes, std::mt19937& random) {
  std::vector<bool> done(nodes.size());
  for (std::size_t ran = 0; ran < nodes.size(); ++ran) {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (!done[i] && std::ranges::all_of(nodes[i].after, [&](std::size_t node) { return done[node]; }))
        ready.push_back(i);
    }
    const std::size_t chosen = ready.at(random() % ready.size());
    if (nodes[chosen].work) nodes[chosen].work();
    done[chosen] = true;
  }
}

// As CUDA's functions that list nodes: their number alone where there is no place for them.
cudaError_t list_nodes(const std::vector<cudaGraphNode_t>& nodes, cudaGraphNode_t* to, std::size_t* count) {
  if (to != nullptr) std::copy_n(nodes.begin(), std::min(*count, nodes.size()), to);
  *count = nodes.size();
  return cudaSuccess;
}

template <typename Wanted>
cudaError_t list_nodes_if(const CUgraph_st& graph, const Wanted& wanted, cudaGraphNode_t* to,
                          std::size_t* count) {
  std::vector<cudaGraphNode_t> found;
  for (const auto& node : graph.nodes) {
    if (wanted(*node)) found.push_back(node.get());
  }
  return list_nodes(found, to, count);
}

// While a thread captures, it can neither wait for the device nor ask it.
cudaError_t waited_for(const std::function<void()>& wait) {
  if (capturing) return cudaErrorStreamCaptureUnsupported;
  wait();
  return failure();
}

}  // namespace

cudaGraphNode_t put(cudaStream_t to, std::function<void()> work, cudaGraphNodeType type) {
  CUstream_st& stream = stream_of(to);
  if (stream.capture == nullptr) {
    Device::get().add(*stream.queue, {std::move(work), nullptr});
    return nullptr;
  }
  cudaGraph_t graph = stream.capture->graph;
  auto& node = graph->nodes.emplace_back(std::make_unique<CUgraphNode_st>());
  *node = {graph, type, std::move(work), {}, std::exchange(stream.ends, {node.get()})};
  return node.get();
}

void launch(const Grid& grid, cudaStream_t stream, std::function<void()> thread) {
  put(stream, [grid, thread = std::move(thread)] { run_grid(grid, thread); });
}

cudaError_t drain() {
  return waited_for([] { Device::get().drain(); });
}
cudaError_t drain(cudaStream_t stream) {
  return waited_for(
      [queue = stream_of(stream).queue] { Device::get().wait([&] { return queue->empty(); }); });
}
cudaError_t failure() { return Device::get().failed_with().empty() ? cudaSuccess : cudaErrorLaunchFailure; }
const char* failure_text() { return Device::get().failed_with().c_str(); }

}  // namespace redline::emulator

extern "C" {

// --- Streams, events ---

cudaError_t cudaDeviceSynchronize() { return drain(); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  if (flags != cudaStreamNonBlocking) return cudaErrorNotSupported;  // none waits for the default stream
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return drain(stream); }
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Queue& queue = *stream_of(stream).queue;
  if (!Device::get().ask([&] { return queue.empty(); })) return cudaErrorNotReady;
  return failure();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t to, cudaEvent_t event, unsigned) {
  CUstream_st& stream = stream_of(to);
  const bool captured = event->capture != nullptr && event->capture->graph != nullptr;
  if (captured && (stream.capture == nullptr || stream.capture == event->capture))
    join(stream, *event);
  else if (event->capture != nullptr || stream.capture != nullptr)
    return cudaErrorStreamCaptureIsolation;  // another capture's, or of one that has ended
  else
    Device::get().add(*stream.queue, {nullptr, event->ticks});
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t on) {
  const CUstream_st& stream = stream_of(on);
  event->capture = stream.capture;
  event->ends = stream.ends;
  if (stream.capture == nullptr) Device::get().add(*stream.queue, {nullptr, event->ticks, 0, true});
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return waited_for(
      [ticks = event->ticks] { Device::get().wait([&] { return ticks->done >= ticks->asked; }); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (!Device::get().ask([&] { return event->ticks->done >= event->ticks->asked; })) return cudaErrorNotReady;
  return failure();
}
// Less every time: of several candidates the last is taken, where a deterministic run takes the first.
// FAKE_MILLISECONDS: the most.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  static float next = 1e6F;
  if (const char* most = std::getenv("FAKE_MILLISECONDS")) next = std::min(next, std::strtof(most, nullptr));
  *milliseconds = next *= 0.999F;
  return failure();
}

// --- Graphs ---

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->capture = std::make_shared<Capture>(Capture{new CUgraph_st, {stream}});
  capturing = true;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::shared_ptr<Capture> capture = stream->capture;
  *graph = std::exchange(capture->graph, nullptr);
  const bool joined = all_joined(**graph, stream->ends);
  for (cudaStream_t each : capture->streams) {
    each->capture = nullptr;
    each->ends.clear();
  }
  capturing = false;
  if (joined) return cudaSuccess;
  delete std::exchange(*graph, nullptr);
  return cudaErrorStreamCaptureUnjoined;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t of, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** ends,
                                     const cudaGraphEdgeData**, std::size_t* count) {
  const CUstream_st& stream = stream_of(of);
  *status = stream.capture == nullptr ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  if (id != nullptr) *id = reinterpret_cast<std::uintptr_t>(stream.capture.get());
  if (graph != nullptr) *graph = stream.capture == nullptr ? nullptr : stream.capture->graph;
  if (ends != nullptr) *ends = stream.ends.data();
  if (count != nullptr) *count = stream.ends.size();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  std::vector<CUgraphExec_st::Node> nodes;
  const auto place = [&](cudaGraphNode_t node) {
    const auto found = std::ranges::find_if(graph->nodes, [&](const auto& own) { return own.get() == node; });
    return static_cast<std::size_t>(found - graph->nodes.begin());
  };
  for (const auto& node : graph->nodes) {
    auto& copy = nodes.emplace_back(CUgraphExec_st::Node{node->work, {}});
    std::ranges::transform(node->after, std::back_inserter(copy.after), place);
  }
  *exec = new CUgraphExec_st{std::make_shared<const std::vector<CUgraphExec_st::Node>>(std::move(nodes))};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  put(stream, [nodes = exec->nodes] { run_nodes(*nodes, Device::get().random); });
  return failure();
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  return list_nodes_if(
      *graph, [](const auto&) { return true; }, nodes, count);
}
cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  return list_nodes_if(
      *graph, [](const auto& node) { return node.after.empty(); }, nodes, count);
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  *type = node->type;
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData*,
                                         std::size_t* count) {
  return list_nodes(node->after, nodes, count);
}
cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t of, cudaGraphNode_t* nodes, cudaGraphEdgeData*,
                                           std::size_t* count) {
  const auto waits = [&](const auto& node) { return std::ranges::count(node.after, of) > 0; };
  return list_nodes_if(*of->graph, waits, nodes, count);
}
cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, cudaMemsetParams* params) {
  *params = node->memset;
  return cudaSuccess;
}
cudaError_t cudaGraphAddDependencies(cudaGraph_t, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                     const cudaGraphEdgeData*, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i]->after.push_back(from[i]);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  for (const auto& each : node->graph->nodes) std::erase(each->after, node);
  std::erase_if(node->graph->nodes, [&](const auto& each) { return each.get() == node; });
  return cudaSuccess;
}
// Kernels of one pointer: the only ones that are not captured.
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*,
                                   std::size_t, const cudaKernelNodeParams* params) {
  const auto kernel = reinterpret_cast<void (*)(const void*)>(params->func);
  const auto* argument = *static_cast<const void* const*>(params->kernelParams[0]);
  const Grid grid{params->gridDim, params->blockDim, params->sharedMemBytes};
  auto& added = graph->nodes.emplace_back(std::make_unique<CUgraphNode_st>());
  *added = {graph, cudaGraphNodeTypeKernel, [=] { run_grid(grid, [=] { kernel(argument); }); }};
  *node = added.get();
  return cudaSuccess;
}

}  // extern "C"
