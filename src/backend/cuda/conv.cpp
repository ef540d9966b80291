#include "backend/cuda/conv.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "backend/cuda/device.h"

namespace redline::backend::cuda {
namespace {

namespace fe = cudnn_frontend;
using TensorPtr = std::shared_ptr<fe::graph::Tensor_attributes>;

fe::DataType_t data_type(graph::DType dtype) {
  switch (dtype) {
    case graph::DType::f16:
      return fe::DataType_t::HALF;
    case graph::DType::bf16:
      return fe::DataType_t::BFLOAT16;
    default:
      return fe::DataType_t::FLOAT;
  }
}

class CudnnHandle {
 public:
  CudnnHandle() {
    const cudnnStatus_t status = cudnnCreate(&handle_);
    if (status != CUDNN_STATUS_SUCCESS)
      throw UnavailableError("cuDNN does not start: {}", cudnnGetErrorString(status));
  }
  ~CudnnHandle() { cudnnDestroy(handle_); }
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;
  cudnnHandle_t get() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

// Ids of a graph's tensors, the same in every graph.
enum Uid : std::int64_t { kX = 1, kW, kY, kSum, kSquares };

// One convolution as a cuDNN graph, channels-last.
class ConvGraph {
 public:
  explicit ConvGraph(const ConvShape& s) : shape_(s) {
    graph_.set_io_data_type(data_type(s.dtype))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    switch (s.pass) {
      case ConvPass::forward:
      case ConvPass::forward_sums: {
        const TensorPtr y = graph_.conv_fprop(activation(kX, s.c, s.h, s.w), filter(),
                                              windowed(fe::graph::Conv_fprop_attributes()));
        y->set_output(true).set_uid(kY);
        if (s.pass == ConvPass::forward) break;
        auto [sum, squares] = graph_.genstats(y, fe::graph::Genstats_attributes());
        sum->set_output(true).set_data_type(fe::DataType_t::FLOAT).set_uid(kSum);
        squares->set_output(true).set_data_type(fe::DataType_t::FLOAT).set_uid(kSquares);
        break;
      }
      case ConvPass::grad_input: {
        const TensorPtr dx = graph_.conv_dgrad(activation(kY, s.k, s.out_h, s.out_w), filter(),
                                               windowed(fe::graph::Conv_dgrad_attributes()));
        dx->set_output(true).set_uid(kX).set_dim({s.n, s.c, s.h, s.w}).set_stride(strides(s.c, s.h, s.w));
        break;
      }
      case ConvPass::grad_weight: {
        const TensorPtr dw =
            graph_.conv_wgrad(activation(kY, s.k, s.out_h, s.out_w), activation(kX, s.c, s.h, s.w),
                              windowed(fe::graph::Conv_wgrad_attributes()));
        dw->set_output(true).set_uid(kW).set_dim({s.k, s.c, s.kernel, s.kernel});
        dw->set_stride(strides(s.c, s.kernel, s.kernel));
        break;
      }
    }
  }

  // False, with why, when cuDNN does not know the pattern.
  bool prepare(cudnnHandle_t handle, const ConvRules& rules, std::string& why) {
    if (failed(graph_.validate(), why) || failed(graph_.build_operation_graph(handle), why)) return false;
    if (failed(graph_.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}), why))
      return false;
    if (rules.deterministic) graph_.deselect_numeric_notes({fe::NumericalNote_t::NONDETERMINISTIC});
    // No transforms that lose digits, and no sums in 16 bits: which plan wins is a matter of timing, and how
    // exact a result is must not be. Deselecting moves no index, so that remembered choices hold; one of a
    // plan that is deselected no longer builds and is made anew.
    graph_.deselect_numeric_notes({fe::NumericalNote_t::WINOGRAD, fe::NumericalNote_t::FFT,
                                   fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION});
    // fp32 means fp32: no matrix units, which round inputs to tf32, unless that was asked for.
    if (shape_.dtype == graph::DType::f32 && !rules.tf32) {
      graph_.deselect_numeric_notes(
          {fe::NumericalNote_t::TENSOR_CORE, fe::NumericalNote_t::DOWN_CONVERT_INPUTS});
    }
    return true;
  }

  fe::graph::Graph& graph() { return graph_; }

 private:
  static bool failed(fe::error_t error, std::string& why) {
    if (error.is_good()) return false;
    why = error.get_message();
    return true;
  }

  static std::vector<std::int64_t> strides(std::int64_t c, std::int64_t h, std::int64_t w) {
    return {c * h * w, 1, c * w, c};
  }

  TensorPtr activation(std::int64_t uid, std::int64_t c, std::int64_t h, std::int64_t w) {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_uid(uid)
                             .set_dim({shape_.n, c, h, w})
                             .set_stride(strides(c, h, w)));
  }

  TensorPtr filter() {
    const ConvShape& s = shape_;
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_uid(kW)
                             .set_dim({s.k, s.c, s.kernel, s.kernel})
                             .set_stride(strides(s.c, s.kernel, s.kernel)));
  }

  template <typename Attributes>
  Attributes windowed(Attributes attributes) const {
    attributes.set_padding({shape_.pad, shape_.pad})
        .set_stride({shape_.stride, shape_.stride})
        .set_dilation({std::int64_t{1}, std::int64_t{1}});
    return attributes;
  }

  ConvShape shape_;
  fe::graph::Graph graph_;
};

std::unordered_map<std::int64_t, void*> pack(const ConvShape& shape, const ConvPointers& p) {
  std::unordered_map<std::int64_t, void*> pack = {{kX, p.x}, {kW, p.w}, {kY, p.y}};
  if (shape.pass == ConvPass::forward_sums) {
    pack[kSum] = p.sums;
    pack[kSquares] = p.sums + shape.k;
  }
  return pack;
}

// The handle that plans run with; cuDNN ties a stream to a handle, so one per library, used by one thread.
class CudnnPlan final : public ConvPlan {
 public:
  CudnnPlan(std::unique_ptr<ConvGraph> graph, const ConvShape& shape, std::int64_t index,
            std::shared_ptr<CudnnHandle> handle)
      : graph_(std::move(graph)), shape_(shape), index_(index), handle_(std::move(handle)) {}

  void run(const ConvPointers& pointers, void* workspace, cudaStream_t stream) const override {
    cudnnSetStream(handle_->get(), stream);
    auto variant = pack(shape_, pointers);
    auto result = graph_->graph().execute_plan_at_index(handle_->get(), variant, workspace, index_);
    check(result.is_good(), "cuDNN fails at {}: {}", shape_.key(), result.get_message());
  }
  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(graph_->graph().get_workspace_size_plan_at_index(index_));
  }

 private:
  std::unique_ptr<ConvGraph> graph_;
  ConvShape shape_;
  std::int64_t index_;
  std::shared_ptr<CudnnHandle> handle_;
};

// Random bytes that are finite, small numbers in every type: timing on zeros flatters.
DeviceMemory random_memory(std::size_t bytes) {
  DeviceMemory memory(bytes);
  std::vector<std::uint16_t> pattern(std::size_t{1} << 20);
  std::uint32_t state = 1;
  for (std::uint16_t& value : pattern) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<std::uint16_t>(0x3000U | (state >> 20 & 0x7ffU) | (state >> 31 << 15));
  }
  for (std::size_t at = 0; at < bytes; at += pattern.size() * 2) {
    check_cuda(cudaMemcpy(memory.data() + at, pattern.data(), std::min(pattern.size() * 2, bytes - at),
                          cudaMemcpyHostToDevice),
               "filling device memory");
  }
  return memory;
}

class CudnnLibrary final : public ConvLibrary {
 public:
  CudnnLibrary(Choices& choices, const ConvRules& rules)
      : choices_(choices), rules_(rules), handle_(std::make_shared<CudnnHandle>()) {
    check_cuda(cudaGetDevice(&device_), "asking for the device");
  }

  std::vector<std::shared_ptr<const ConvPlan>> find(const std::vector<ConvShape>& shapes) override {
    std::vector<ConvShape> todo;
    for (const ConvShape& shape : shapes) {
      if (known_.contains(shape.key())) continue;
      known_[shape.key()] = nullptr;
      todo.push_back(shape);
    }
    build_all(todo);
    std::vector<std::shared_ptr<const ConvPlan>> plans;
    for (const ConvShape& shape : shapes) plans.push_back(known_.at(shape.key()));
    return plans;
  }

 private:
  // Plans are compiled on all cores; timing takes turns on the device.
  void build_all(const std::vector<ConvShape>& shapes) {
    if (shapes.empty()) return;
    std::size_t bytes = 0;
    for (const ConvShape& s : shapes) {
      const auto element = graph::size_of(s.dtype);
      bytes = std::max({bytes, static_cast<std::size_t>(s.n * s.c * s.h * s.w) * element,
                        static_cast<std::size_t>(s.n * s.k * s.out_h * s.out_w) * element,
                        static_cast<std::size_t>(s.k * s.c * s.kernel * s.kernel) * element});
    }
    const DeviceMemory x = random_memory(bytes), w = random_memory(bytes), y = random_memory(bytes);
    const DeviceMemory sums(std::size_t{1} << 20);
    DeviceMemory workspace;
    pointers_ = {x.data(), w.data(), y.data(), reinterpret_cast<float*>(sums.data())};
    workspace_ = &workspace;
    std::atomic<std::size_t> next{0};
    std::mutex error_mutex;
    std::exception_ptr error;
    std::vector<std::thread> workers;
    const unsigned count = std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
    for (unsigned t = 0; t < count; ++t) {
      workers.emplace_back([&] {
        try {
          check_cuda(cudaSetDevice(device_), "choosing the device");
          const CudnnHandle handle;
          for (std::size_t i = next++; i < shapes.size(); i = next++) build(shapes[i], handle.get());
        } catch (...) {
          const std::lock_guard lock(error_mutex);
          error = std::current_exception();
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    if (error) std::rethrow_exception(error);
  }

  void build(const ConvShape& shape, cudnnHandle_t handle) {
    // Its sums are added in the order in which blocks end.
    if (rules_.deterministic && shape.pass == ConvPass::forward_sums) return;
    auto graph = std::make_unique<ConvGraph>(shape);
    std::string why;
    if (!graph->prepare(handle, rules_, why)) {
      if (shape.pass == ConvPass::forward_sums) return;
      throw UnavailableError("cuDNN has no plan for {}: {}", shape.key(), why);
    }
    const std::int64_t cached = choices_.find(shape.key());
    std::int64_t chosen = -1;
    if (cached >= 0 && cached < graph->graph().get_execution_plan_count() &&
        graph->graph().build_plan_at_index(handle, cached).is_good()) {
      chosen = cached;
    } else {
      chosen = time_plans(*graph, shape, handle);
    }
    const std::lock_guard lock(mutex_);
    if (chosen < 0) {
      if (shape.pass == ConvPass::forward_sums) return;
      throw UnavailableError("none of cuDNN's plans for {} works on this device", shape.key());
    }
    choices_.put(shape.key(), chosen);
    known_[shape.key()] = std::make_shared<CudnnPlan>(std::move(graph), shape, chosen, handle_);
  }

  // The index of the fastest plan that runs; -1 when none does.
  std::int64_t time_plans(ConvGraph& graph, const ConvShape& shape, cudnnHandle_t handle) {
    constexpr std::int64_t kMost = 16;
    constexpr std::int64_t kMostWorkspace = std::int64_t{1} << 31;
    std::vector<std::int64_t> built;
    const std::int64_t count = graph.graph().get_execution_plan_count();
    for (std::int64_t i = 0; i < count && static_cast<std::int64_t>(built.size()) < kMost; ++i) {
      if (graph.graph().build_plan_at_index(handle, i).is_good() &&
          graph.graph().get_workspace_size_plan_at_index(i) <= kMostWorkspace) {
        built.push_back(i);
      }
    }
    // Timing differs from run to run; where bits may not, cuDNN's first proposal is taken.
    if (rules_.deterministic && !built.empty()) return built.front();
    const std::lock_guard lock(timing_mutex_);
    std::int64_t chosen = -1;
    double best = 0.0;
    for (const std::int64_t index : built) {
      const double ms = time_plan(graph, shape, handle, index);
      if (ms > 0.0 && (chosen < 0 || ms < best)) {
        best = ms;
        chosen = index;
      }
    }
    return chosen;
  }

  // Milliseconds of one run, best of a few; negative when it fails.
  double time_plan(ConvGraph& graph, const ConvShape& shape, cudnnHandle_t handle, std::int64_t index) {
    const auto needed = static_cast<std::size_t>(graph.graph().get_workspace_size_plan_at_index(index));
    if (workspace_->size() < needed) {
      *workspace_ = DeviceMemory();
      *workspace_ = DeviceMemory(needed);
    }
    auto variant = pack(shape, pointers_);
    const Stream stream = make_stream();
    cudnnSetStream(handle, stream.get());
    const auto run = [&] {
      return graph.graph().execute_plan_at_index(handle, variant, workspace_->data(), index).is_good();
    };
    if (!run() || !run()) return -1.0;
    const Event begin = make_event(true), end = make_event(true);
    double best = -1.0;
    for (int repeat = 0; repeat < 3; ++repeat) {
      constexpr int kRuns = 4;
      cudaEventRecord(begin.get(), stream.get());
      for (int i = 0; i < kRuns; ++i) {
        if (!run()) return -1.0;
      }
      cudaEventRecord(end.get(), stream.get());
      if (cudaEventSynchronize(end.get()) != cudaSuccess) return -1.0;
      float ms = 0.0F;
      cudaEventElapsedTime(&ms, begin.get(), end.get());
      if (best < 0.0 || ms / kRuns < best) best = ms / kRuns;
    }
    return best;
  }

  Choices& choices_;
  ConvRules rules_;
  std::shared_ptr<CudnnHandle> handle_;
  int device_ = 0;
  std::map<std::string, std::shared_ptr<const ConvPlan>> known_;
  std::mutex mutex_, timing_mutex_;
  ConvPointers pointers_;
  DeviceMemory* workspace_ = nullptr;
};

}  // namespace

std::string cudnn_version() {
  const std::size_t v = cudnnGetVersion();
  return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

std::string ConvShape::key() const {
  constexpr const char* kPasses[] = {"forward", "forward_sums", "grad_input", "grad_weight"};
  return fmt::format("{}_{}_n{}c{}h{}w{}k{}r{}s{}p{}", kPasses[static_cast<int>(pass)], name_of(dtype), n, c,
                     h, w, k, kernel, stride, pad);
}

std::unique_ptr<ConvLibrary> make_conv_library(Choices& choices, const ConvRules& rules) {
  return std::make_unique<CudnnLibrary>(choices, rules);
}

}  // namespace redline::backend::cuda
