#include "backend/cuda/cudnn.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <map>
#include <thread>
#include <unordered_map>

#include "backend/cuda/device.h"

namespace redline::backend::cuda {
namespace {

namespace fe = cudnn_frontend;
using TensorPtr = std::shared_ptr<fe::graph::Tensor_attributes>;

fe::DataType_t data_type(graph::DType dtype) {
  return name_in_library(dtype, fe::DataType_t::FLOAT, fe::DataType_t::HALF, fe::DataType_t::BFLOAT16);
}

using Handle = std::shared_ptr<cudnnContext>;

Handle make_handle() {
  cudnnHandle_t handle = nullptr;
  const cudnnStatus_t status = cudnnCreate(&handle);
  if (status != CUDNN_STATUS_SUCCESS)
    throw UnavailableError("cuDNN failed to start: {}", cudnnGetErrorString(status));
  return {handle, cudnnDestroy};
}

// Ids of a graph's tensors, the same in every graph.
enum Uid : std::int64_t { kX = 1, kW, kY, kSum, kSquares };

// One convolution as a cuDNN graph, channels-last.
class ConvGraph {
 public:
  explicit ConvGraph(const ConvShape& s) : shape_(s) {
    graph_.set_io_data_type(data_type(s.dtype))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const Dims x{s.n, s.c, s.h, s.w}, w{s.k, s.filter_channels(), s.kernel, s.kernel};
    const Dims y{s.n, s.k, s.out_h, s.out_w};
    switch (s.pass) {
      case ConvPass::forward:
      case ConvPass::forward_sums: {
        const TensorPtr out =
            graph_.conv_fprop(tensor(kX, x), tensor(kW, w), windowed(fe::graph::Conv_fprop_attributes()));
        out->set_output(true).set_uid(kY);
        if (s.pass == ConvPass::forward) break;
        auto [sum, squares] = graph_.genstats(out, fe::graph::Genstats_attributes());
        sum->set_output(true).set_data_type(fe::DataType_t::FLOAT).set_uid(kSum);
        squares->set_output(true).set_data_type(fe::DataType_t::FLOAT).set_uid(kSquares);
        break;
      }
      case ConvPass::grad_input:
        describe(
            *graph_.conv_dgrad(tensor(kY, y), tensor(kW, w), windowed(fe::graph::Conv_dgrad_attributes())),
            kX, x)
            .set_output(true);
        break;
      case ConvPass::grad_weight:
        describe(
            *graph_.conv_wgrad(tensor(kY, y), tensor(kX, x), windowed(fe::graph::Conv_wgrad_attributes())),
            kW, w)
            .set_output(true);
        break;
    }
  }

  // Returns false, and sets `why`, if cuDNN does not support the pattern.
  bool prepare(cudnnHandle_t handle, const ConvRules& rules, std::string& why) {
    if (failed(graph_.validate(), why) || failed(graph_.build_operation_graph(handle), why)) return false;
    if (failed(graph_.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}), why))
      return false;
    if (rules.deterministic) graph_.deselect_numeric_notes({fe::NumericalNote_t::NONDETERMINISTIC});
    // No transforms that lose precision, and no sums in 16 bits: timing decides which plan is used, and must
    // not decide how exact results are. Deselected plans do not build.
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

  using Dims = std::array<std::int64_t, 4>;

  static fe::graph::Tensor_attributes& describe(fe::graph::Tensor_attributes& tensor, std::int64_t uid,
                                                const Dims& dims) {
    const auto& [n, c, h, w] = dims;
    return tensor.set_uid(uid).set_dim({n, c, h, w}).set_stride({c * h * w, 1, c * w, c});
  }
  TensorPtr tensor(std::int64_t uid, const Dims& dims) {
    fe::graph::Tensor_attributes attributes;
    return graph_.tensor(describe(attributes, uid, dims));
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

// The plans of a shape, and how far its proposals have been tried. One thread at a time.
struct ShapePlans {
  std::shared_ptr<ConvGraph> graph;  // null if cuDNN does not support the pattern
  std::int64_t next = 0;             // the proposal to try next
  bool complete = false;
  std::vector<std::shared_ptr<const ConvPlan>> plans;

  std::string name_at(std::int64_t index) const {
    std::string name;
    return graph->graph().get_plan_name_at_index(index, name).is_good() ? name : std::string();
  }
  std::int64_t count() const { return graph == nullptr ? 0 : graph->graph().get_execution_plan_count(); }
};

// Calls work(item, handle) for all items on all cores; the first error is thrown here when all are done.
template <typename Items, typename Work>
void on_all_cores(Items& items, const Work& work) {
  const int device = current_device();
  std::atomic<std::size_t> next{0};
  std::vector<std::future<void>> workers;
  const std::size_t most = std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
  for (std::size_t t = 0; t < std::min(most, items.size()); ++t) {
    workers.push_back(std::async(std::launch::async, [&] {
      check_cuda(cudaSetDevice(device), "choosing the device");
      const Handle handle = make_handle();
      for (std::size_t i = next++; i < items.size(); i = next++) work(items[i], handle.get());
    }));
  }
  for (std::future<void>& worker : workers) worker.get();
}

class CudnnLibrary final : public ConvLibrary {
 public:
  explicit CudnnLibrary(const ConvRules& rules) : rules_(rules), handle_(make_handle()) {}

  void build(std::vector<ConvRequest> requests, int most, const std::function<bool()>& go_on) override {
    std::ranges::stable_sort(requests, std::ranges::greater{}, &ConvRequest::value);
    for (const ConvRequest& request : requests) known_.try_emplace(request.shape.key());
    on_all_cores(requests, [&](const ConvRequest& request, cudnnHandle_t handle) {
      build_first(known_.at(request.shape.key()), request, handle);
    });
    if (most < 2) return;
    on_all_cores(requests, [&](const ConvRequest& request, cudnnHandle_t handle) {
      ShapePlans& known = known_.at(request.shape.key());
      const auto is_found = [&](const std::string& name) { return find(known, name); };
      if (!request.others && std::ranges::all_of(request.plans, is_found)) return;
      while (!known.complete && go_on()) {
        known.complete =
            static_cast<int>(known.plans.size()) >= most || !build_next(known, request.shape, handle);
      }
    });
  }

  std::vector<std::shared_ptr<const ConvPlan>> plans(const ConvShape& shape) const override {
    const auto found = known_.find(shape.key());
    return found == known_.end() ? std::vector<std::shared_ptr<const ConvPlan>>() : found->second.plans;
  }
  bool is_complete(const ConvShape& shape) const override {
    const auto found = known_.find(shape.key());
    return found != known_.end() && found->second.complete;
  }

 private:
  static bool find(const ShapePlans& known, const std::string& name) {
    return std::ranges::any_of(known.plans, [&](const auto& plan) { return plan->name == name; });
  }

  void build_first(ShapePlans& known, const ConvRequest& request, cudnnHandle_t handle) {
    const ConvShape& shape = request.shape;
    // forward_sums is not deterministic: it adds in the order in which blocks end.
    const bool needed = shape.pass != ConvPass::forward_sums;
    if (rules_.deterministic && !needed) return;
    if (known.graph == nullptr) {
      auto graph = std::make_shared<ConvGraph>(shape);
      std::string why;
      if (graph->prepare(handle, rules_, why)) known.graph = std::move(graph);
      if (known.graph == nullptr && needed)
        throw UnavailableError("cuDNN has no plan for {}: {}", shape.key(), why);
    }
    for (const std::string& name : request.plans) {
      for (std::int64_t i = known.next; i < known.count() && !find(known, name); ++i) {
        if (known.name_at(i) == name) add(known, shape, i, handle);
      }
    }
    if (known.plans.empty() && !build_next(known, shape, handle) && needed)
      throw UnavailableError("none of cuDNN's plans for {} works on this device", shape.key());
  }

  // Adds the next proposal that can be built; false when there are no more.
  bool build_next(ShapePlans& known, const ConvShape& shape, cudnnHandle_t handle) const {
    while (known.next < known.count()) {
      const std::int64_t index = known.next++;
      if (!find(known, known.name_at(index)) && add(known, shape, index, handle)) return true;
    }
    return false;
  }

  // A cuDNN handle has one stream, so the handle that plans run with is used by one thread only.
  bool add(ShapePlans& known, const ConvShape& shape, std::int64_t index, cudnnHandle_t handle) const {
    constexpr std::int64_t kMostWorkspace = std::int64_t{1} << 31;
    if (!known.graph->graph().build_plan_at_index(handle, index).is_good()) return false;
    const std::int64_t bytes = known.graph->graph().get_workspace_size_plan_at_index(index);
    if (bytes > kMostWorkspace) return false;
    known.plans.push_back(std::make_shared<ConvPlan>(
        known.name_at(index), static_cast<std::size_t>(bytes),
        [=, graph = known.graph, handle = handle_](const ConvPointers& p, void* workspace,
                                                   cudaStream_t stream) {
          cudnnSetStream(handle.get(), stream);
          std::unordered_map<std::int64_t, void*> pack = {{kX, p.x}, {kW, p.w}, {kY, p.y}};
          if (shape.pass == ConvPass::forward_sums)
            pack.insert({{kSum, p.sums}, {kSquares, p.sums + shape.k}});
          auto result = graph->graph().execute_plan_at_index(handle.get(), pack, workspace, index);
          check(result.is_good(), "cuDNN failed in {}: {}", shape.key(), result.get_message());
        }));
    return true;
  }

  ConvRules rules_;
  Handle handle_;
  std::map<std::string, ShapePlans> known_;  // by the shape's key
};

}  // namespace

std::string cudnn_version() {
  const std::size_t v = cudnnGetVersion();
  return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

std::unique_ptr<ConvLibrary> make_conv_library(const ConvRules& rules) {
  return std::make_unique<CudnnLibrary>(rules);
}

}  // namespace redline::backend::cuda
