#include "backend/cuda/trace.h"

#include <cublas_v2.h>
#include <cupti.h>
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "backend/cuda/device.h"
#include "backend/cuda/node_ops.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/stacks.h"

namespace redline::backend::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibraryName = "libcupti.so.13";
constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME};

// CUPTI is where CUDA's other libraries are: found by name, next to cuBLAS, or in a toolkit.
SharedLibrary open_library() {
  std::vector<std::string> places = {kLibraryName};
  Dl_info blas{};
  if (::dladdr(reinterpret_cast<void*>(&cublasCreate_v2), &blas) != 0 && blas.dli_fname != nullptr) {
    const fs::path folder = fs::path(blas.dli_fname).parent_path();
    places.push_back(folder / kLibraryName);
    places.push_back(folder / "../../cuda_cupti/lib" / kLibraryName);
    places.push_back(folder / "../extras/CUPTI/lib64" / kLibraryName);
  }
  places.push_back(fs::path("/usr/local/cuda/extras/CUPTI/lib64") / kLibraryName);
  places.push_back(fs::path("/usr/local/cuda/lib64") / kLibraryName);
  for (const std::string& place : places) {
    SharedLibrary library(place);
    if (library.loaded()) return library;
  }
  throw UnavailableError(
      "no kernel timeline: {} is missing; install CUDA's profiling libraries (the package "
      "nvidia-cuda-cupti of a Python environment has them)",
      kLibraryName);
}

// By CUPTI's numbers of kinds of memory and of copies.
constexpr const char* kMemoryNames[] = {"Unknown", "Pageable", "Pinned", "Device",
                                        "Array",   "Managed",  "Device", "Managed"};
static_assert(CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE == 1 && CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC == 7);
constexpr const char* kCopyNames[] = {"Memcpy",      "Memcpy HtoD", "Memcpy DtoH", "Memcpy",
                                      "Memcpy",      "Memcpy",      "Memcpy",      "Memcpy",
                                      "Memcpy DtoD", "Memcpy",      "Memcpy PtoP"};
static_assert(CUPTI_ACTIVITY_MEMCPY_KIND_HTOD == 1 && CUPTI_ACTIVITY_MEMCPY_KIND_DTOD == 8 &&
              CUPTI_ACTIVITY_MEMCPY_KIND_PTOP == 10);

template <std::size_t kCount>
const char* name_in(const char* const (&names)[kCount], std::uint8_t kind) {
  return names[kind < kCount ? kind : 0];
}

struct Cupti {
  SharedLibrary from = open_library();
  SharedLibrary::Symbol function(const char* name) const {
    return from.need(name, "there is no kernel timeline without it; install CUPTI of CUDA 13");
  }
  decltype(&cuptiSubscribe) subscribe = function("cuptiSubscribe");
  decltype(&cuptiUnsubscribe) unsubscribe = function("cuptiUnsubscribe");
  decltype(&cuptiEnableCallback) enable_callback = function("cuptiEnableCallback");
  decltype(&cuptiGetCallbackName) callback_name = function("cuptiGetCallbackName");
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = function("cuptiActivityRegisterCallbacks");
  decltype(&cuptiActivityEnable) enable = function("cuptiActivityEnable");
  decltype(&cuptiActivityDisable) disable = function("cuptiActivityDisable");
  decltype(&cuptiActivityFlushAll) flush = function("cuptiActivityFlushAll");
  decltype(&cuptiActivityGetNextRecord) next = function("cuptiActivityGetNextRecord");
  decltype(&cuptiActivityGetNumDroppedRecords) dropped = function("cuptiActivityGetNumDroppedRecords");
  decltype(&cuptiGetTimestamp) timestamp = function("cuptiGetTimestamp");
  decltype(&cuptiGetGraphNodeId) node_id = function("cuptiGetGraphNodeId");
  decltype(&cuptiGetResultString) result_text = function("cuptiGetResultString");

  void check(CUptiResult result, const char* what) const {
    if (result == CUPTI_SUCCESS) return;
    const char* text = nullptr;
    result_text(result, &text);
    throw UnavailableError("no kernel timeline: {}: {}{}", what, text == nullptr ? "unknown error" : text,
                           result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
                               ? "; another profiler is attached to this process"
                               : "");
  }
};

class CuptiTracer final : public KernelTracer {
 public:
  CuptiTracer() {
    CuptiTracer* none = nullptr;
    redline::check(current_.compare_exchange_strong(none, this), "two tracers at once");
    try {
      // An instantiated graph has copies of the captured nodes. Only this callback says of which.
      const auto on_resource = [](void* self, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
        const auto* resource = static_cast<const CUpti_ResourceData*>(data);
        const auto* graph = static_cast<const CUpti_GraphData*>(resource->resourceDescriptor);
        auto* tracer = static_cast<CuptiTracer*>(self);
        std::uint64_t original = 0, clone = 0;
        if (tracer->cupti_.node_id(graph->originalNode, &original) != CUPTI_SUCCESS ||
            tracer->cupti_.node_id(graph->node, &clone) != CUPTI_SUCCESS)
          return;
        const std::lock_guard guard(tracer->lock_);
        tracer->ops_.clone(original, clone);
      };
      cupti_.check(cupti_.subscribe(&subscriber_, on_resource, this), "subscribing");
      cupti_.check(cupti_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE,
                                          CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED),
                   "watching graphs");
      cupti_.check(cupti_.register_callbacks(buffer_requested, buffer_completed), "registering buffers");
    } catch (...) {
      current_ = nullptr;
      throw;
    }
  }
  ~CuptiTracer() override {
    if (running_) {
      for (const CUpti_ActivityKind kind : kKinds) cupti_.disable(kind);
      cupti_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    }
    current_ = nullptr;
    if (subscriber_ != nullptr) cupti_.unsubscribe(subscriber_);
  }

  bool sees_kernels() const override { return true; }
  void start() override {
    std::uint64_t now = 0;
    cupti_.check(cupti_.timestamp(&now), "reading the clock");
    offset_ = steady_nanoseconds() - static_cast<std::int64_t>(now);
    running_ = true;
    for (const CUpti_ActivityKind kind : kKinds) cupti_.check(cupti_.enable(kind), "recording");
  }
  void stop() override {
    if (!running_) return;
    check_cuda(cudaDeviceSynchronize(), "waiting for the device");
    for (const CUpti_ActivityKind kind : kKinds) cupti_.disable(kind);
    cupti_.check(cupti_.flush(0), "collecting records");
    running_ = false;
    std::size_t lost = 0;
    if (cupti_.dropped(nullptr, 0, &lost) == CUPTI_SUCCESS) dropped_ += lost;
  }
  std::size_t count() const override {
    const std::lock_guard guard(lock_);
    return records_.size();
  }
  std::vector<Activity> take() override {
    const std::lock_guard guard(lock_);
    return std::exchange(records_, {});
  }
  std::vector<KernelCounts> count(Executable& executable, Section section,
                                  const std::vector<std::string>& metrics) override {
    auto* launcher = dynamic_cast<GroupLauncher*>(&executable);
    redline::check(launcher != nullptr && !running_, "counters of another backend, or while recording");
    return count_kernels(cupti_.from, *launcher, section, metrics);
  }
  std::uint64_t dropped() const override { return dropped_; }

  void launched(cudaStream_t stream, const graph::Op* op) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaGraph_t graph = nullptr;
    unsigned long long capture = 0;
    if (cudaStreamGetCaptureInfo(stream, &status, &capture, &graph, nullptr, nullptr, nullptr) !=
            cudaSuccess ||
        status != cudaStreamCaptureStatusActive)
      return;
    const std::vector<cudaGraphNode_t> nodes = nodes_of(graph);
    const std::vector<NodeOps::Node> plain(nodes.begin(), nodes.end());
    const std::lock_guard guard(lock_);
    ops_.add(capture, plain, op, [this](NodeOps::Node node) -> std::optional<std::uint64_t> {
      std::uint64_t id = 0;
      const CUptiResult result = cupti_.node_id(static_cast<cudaGraphNode_t>(node), &id);
      return result == CUPTI_SUCCESS ? std::optional(id) : std::nullopt;
    });
  }

 private:
  // CUPTI's buffer callbacks have no user pointer.
  static inline std::atomic<CuptiTracer*> current_ = nullptr;

  static void CUPTIAPI buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
    *size = *buffer == nullptr ? 0 : kBufferBytes;
    *most_records = 0;  // as many as fit
  }

  static void CUPTIAPI buffer_completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                                        std::size_t valid) {
    if (CuptiTracer* tracer = current_.load(); tracer != nullptr && valid > 0)
      tracer->read_buffer(buffer, valid);
    std::free(buffer);
  }

  // Called with lock_ held.
  const std::string* name_of(const char* text) {
    const char* known = text == nullptr ? "unknown" : text;
    const std::string*& found = known_names_[known];
    if (found == nullptr) found = &*names_.insert(demangled(known)).first;
    return found;
  }
  // "cudaGraphLaunch" of "cudaGraphLaunch_v10000".
  const std::string* call_name(const char* text) {
    const std::string* whole = name_of(text);
    const std::size_t version = whole->rfind("_v");
    if (version == std::string::npos ||
        whole->find_first_not_of("0123456789", version + 2) != std::string::npos)
      return whole;
    return &*names_.insert(whole->substr(0, version)).first;
  }

  // Records of the device also have an op, a stream and a device. A start of 0 means that the device had no
  // memory left to time it.
  template <typename Record>
  void add(Activity activity, const Record& from) {
    if (from.start == 0) {
      ++dropped_;
      return;
    }
    activity.begin = static_cast<std::int64_t>(from.start) + offset_;
    activity.end = static_cast<std::int64_t>(from.end) + offset_;
    activity.correlation = from.correlationId;
    if constexpr (requires { from.graphNodeId; }) {
      activity.op = ops_.find(from.graphNodeId);
      activity.stream = from.streamId;
      activity.context = from.contextId;
      activity.device = from.deviceId;
    }
    records_.push_back(activity);
  }

  void read_buffer(std::uint8_t* buffer, std::size_t bytes) {
    using Kind = Activity::Kind;
    const std::lock_guard guard(lock_);
    for (CUpti_Activity* record = nullptr; cupti_.next(buffer, bytes, &record) == CUPTI_SUCCESS;) {
      if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
        add({.name = name_of(kernel.name),
             .grid = {kernel.gridX, kernel.gridY, kernel.gridZ},
             .block = {kernel.blockX, kernel.blockY, kernel.blockZ},
             .registers = kernel.registersPerThread,
             .static_shared = kernel.staticSharedMemory,
             .dynamic_shared = kernel.dynamicSharedMemory},
            kernel);
      } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
        add({.kind = Kind::copy,
             .name = name_of(name_in(kCopyNames, copy.copyKind)),
             .bytes = copy.bytes,
             .from = name_in(kMemoryNames, copy.srcKind),
             .to = name_in(kMemoryNames, copy.dstKind)},
            copy);
      } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const auto& fill = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
        add({.kind = Kind::fill, .name = name_of("Memset"), .bytes = fill.bytes}, fill);
      } else if (record->kind == CUPTI_ACTIVITY_KIND_RUNTIME) {
        const auto& call = *reinterpret_cast<const CUpti_ActivityAPI*>(record);
        const char* name = nullptr;
        cupti_.callback_name(CUPTI_CB_DOMAIN_RUNTIME_API, call.cbid, &name);
        add({.kind = Kind::call, .name = call_name(name), .stream = call.threadId}, call);
      }
    }
  }

  Cupti cupti_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  mutable std::mutex lock_;
  std::set<std::string> names_;
  std::map<const char*, const std::string*> known_names_;  // by CUPTI's own pointer
  NodeOps ops_;
  std::vector<Activity> records_;
  std::int64_t offset_ = 0;  // from CUPTI's clock to ours
  std::uint64_t dropped_ = 0;
  bool running_ = false;
};

}  // namespace

std::shared_ptr<KernelTracer> make_kernel_tracer() { return std::make_shared<CuptiTracer>(); }

}  // namespace redline::backend::cuda
