// The plugin: device, state, executable, and the entry that the program looks up.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "backend/backend.h"
#include "backend/cuda/counters.h"
#include "backend/cuda/inputs.h"
#include "backend/cuda/jpeg.h"
#include "backend/cuda/layouts.h"
#include "backend/cuda/memory_study.h"
#include "backend/cuda/metrics_ring.h"
#include "backend/cuda/patterns.h"
#include "backend/cuda/reductions.h"
#include "backend/cuda/state.h"
#include "backend/cuda/step.h"
#include "backend/cuda/trace.h"
#include "backend/cuda_plugin.h"
#include "backend/placed_tensors.h"

namespace redline::backend {
namespace {

using namespace cuda;
using graph::DType;
using graph::OpKind;
using graph::TensorId;
using graph::TensorKind;
using plan::Layout;
using plan::Region;

class CudaExecutable final : public Executable, public OpLauncher {
 public:
  CudaExecutable(std::shared_ptr<const plan::Plan> plan, std::shared_ptr<CudaState> state, ConvLibrary& convs,
                 Choices& choices, const ConvRules& rules, InputCopy input_copy, const cudaDeviceProp& device,
                 std::shared_ptr<CuptiTracer> tracer, std::shared_ptr<Nccl> nccl,
                 std::shared_ptr<DeviceClock> clock)
      : plan_(std::move(plan)),
        tracer_(std::move(tracer)),
        state_(std::move(state)),
        stream_(make_stream(/*urgent=*/true)),
        beside_(make_stream()),
        copies_(make_stream()),
        shared_(convs, device, rules.tf32, nccl),
        tensors_(*plan_, *state_),
        record_(sizeof(RunRecord)),
        metrics_(std::move(clock)) {
    for (TensorId id : plan_->graph().of_kind(TensorKind::input)) {
      if (address(id) != nullptr) inputs_.try_emplace(id, plan_->placement(id).bytes, input_copy);
    }
    const Places places{[this](TensorId id) { return address(id); },
                        [this](TensorId id, DType dtype) { return weights(id, dtype); }};
    reductions_ = std::make_unique<Reductions>(*plan_, std::move(nccl), places.address, dtype());
    make_steps(places, choices, rules.deterministic);
  }

  ~CudaExecutable() override { cudaStreamSynchronize(stream_.get()); }

  const plan::Plan& plan() const override { return *plan_; }

  void write_input(TensorId id, const void* data, std::size_t bytes) override {
    const std::size_t expected = plan_->placement(id).bytes;
    check(bytes == expected, "input '{}' has {} bytes, not {}", plan_->graph().tensor(id).name, expected,
          bytes);
    inputs_.at(id).write(data, bytes, placed(id), copies_.get(), stream_.get());
  }
  void inputs_taken() override {
    for (const auto& [id, slots] : inputs_) slots.read_out();
  }

  void take_images(TensorId id, const DeviceImages& images) override {
    const auto* own = dynamic_cast<const CudaImages*>(&images);
    check(own != nullptr, "images in the memory of another device");
    own->copy_to(placed(id), plan_->placement(id).bytes, stream_.get());
  }

  std::pair<std::size_t, std::size_t> ops_of(Section section) const override {
    const auto border = static_cast<std::size_t>(plan_->update_begin);
    return {section == Section::update ? border : 0, section == Section::compute ? border : steps_.size()};
  }
  const graph::Op& op(std::size_t i) const override { return plan_->graph().ops()[i]; }
  void open_run() override { begin_run(record(), stream_.get()); }
  void launch_op(std::size_t i) override { launch(i, stream_.get()); }
  void close_run() override {
    end_run(record(), reinterpret_cast<const float*>(address(plan_->model.metrics)),
            reinterpret_cast<const float*>(address(plan_->check)), reductions_->exposed(), stream_.get());
    check_cuda(cudaGetLastError(), "recording a run");
  }
  cudaStream_t stream() const override { return stream_.get(); }

  void run(Section section, std::vector<OpTime>* times) override {
    const auto [begin, end] = ops_of(section);
    if (begin == end) return;
    launched_ = std::chrono::steady_clock::now();
    if (times != nullptr) return run_timed(begin, end, *times);
    GraphExec& exec = graphs_[static_cast<std::size_t>(section)];
    if (!exec) exec = capture(begin, end);
    state_->before_run(stream_.get());
    check_cuda(cudaGraphLaunch(exec.get(), stream_.get()), "launching a step");
    state_->after_run(stream_.get());
  }

  void read(TensorId id, std::span<float> values) const override {
    std::vector<std::byte> host(plan_->placement(id).bytes);
    check_cuda(cudaMemcpyAsync(host.data(), placed(id), host.size(), cudaMemcpyDeviceToHost, stream_.get()),
               "reading a tensor");
    check_cuda(cudaStreamSynchronize(stream_.get()), "waiting for the device");
    plan::load(plan_->graph().tensor(id), plan_->placement(id).layout, host.data(), values);
  }

  void request_metrics() override { metrics_.request(record(), launched_, stream_.get()); }
  std::optional<Metrics> take_metrics(bool wait) override {
    if (wait) reductions_->await([&] { return metrics_.ready(); });
    return metrics_.take(wait);
  }

  void write(TensorId id, std::span<const float> values) override {
    const graph::Tensor& tensor = plan_->graph().tensor(id);
    if (plan_->placement(id).region == Region::state) return state_->write(tensor.name, values);
    std::vector<std::byte> host(plan_->placement(id).bytes);
    plan::store(tensor, plan_->placement(id).layout, values, host.data());
    check_cuda(cudaStreamSynchronize(stream_.get()), "waiting for the device");
    upload(placed(id), host);
  }

  plan::Groups groups() const override { return groups_; }

  ExecutableMemory memory() const override {
    ExecutableMemory use;
    use.arena = tensors_.arena().size();
    use.gradients = tensors_.gradients().size();
    use.state = state_->bytes();
    use.packed_weights = state_->copy_bytes();
    use.scratch = shared_.work_bytes();
    use.inputs = tensors_.own_bytes();
    for (const auto& [id, slots] : inputs_) use.inputs += slots.device_bytes();
    return use;
  }

 private:
  RunRecord* record() const { return reinterpret_cast<RunRecord*>(record_.data()); }
  std::byte* address(TensorId id) const { return tensors_.find(id); }
  std::byte* placed(TensorId id) const { return tensors_.at(id); }
  // The type of activations: that of the first convolution's input.
  DType dtype() const {
    for (const graph::Op& op : plan_->graph().ops()) {
      if (op.kind == OpKind::conv) return plan_->graph().tensor(op.inputs[0]).dtype;
    }
    return DType::f32;
  }

  // Weights as kernels of activations of `dtype` read them.
  std::byte* weights(TensorId id, DType dtype) {
    const graph::Tensor& tensor = plan_->graph().tensor(id);
    return plan_->placement(id).region == Region::state ? state_->copy(tensor.name, dtype) : address(id);
  }

  // Every way to do each op, alone and with its neighbours; then, with memory to run them in, the fastest.
  void make_steps(const Places& places, Choices& choices, bool deterministic) {
    const auto& ops = plan_->graph().ops();
    const ConvSteps convolutions(*plan_, places, shared_);
    UpdateSteps updates(
        *plan_, places.address, [&](TensorId id) { return places.weights(id, dtype()); }, dtype(), shared_);
    std::vector<Ways> alone;
    std::vector<std::vector<Ways>> merged;  // by the first of the ops
    for (std::size_t i = 0; i < ops.size(); ++i) {
      alone.push_back(make(ops[i], places, convolutions, updates));
      merged.push_back(merge_steps(*plan_, i, places, shared_));
    }
    shared_.allocate();
    // Of ways to do the ops from `first` on.
    const auto choose = [&](std::size_t first, const Ways& from) -> std::size_t {
      // Timing differs from run to run: where bits may not, the last way is taken, the most fused one. So it
      // is where the others would read what is not stored.
      if (deterministic || from.key.empty() || reads_remade(first, from.ways[0].size()))
        return from.ways.size() - 1;
      return from.ways.size() == 1 ? 0 : fastest(from, choices);
    };
    for (std::size_t i = 0; i < alone.size(); ++i)
      steps_.push_back(alone[i].ways[choose(i, alone[i])].front());
    group_alone();
    // From the last on: one that takes more ops begins earlier, and is compared with the best of those in it.
    std::set<std::size_t> taken;
    for (std::size_t first = merged.size(); first-- > 0;) {
      for (Ways& together : merged[first]) {
        if (together.needs && !taken.contains(*together.needs)) continue;
        const auto begin = steps_.begin() + static_cast<std::ptrdiff_t>(first);
        together.ways.emplace(together.ways.begin(), begin,
                              begin + static_cast<std::ptrdiff_t>(together.ways[0].size()));
        const std::size_t way = choose(first, together);
        if (way == 0) continue;
        std::ranges::copy(together.ways[way], begin);
        group(first, together.does);
        taken.insert(first);
      }
    }
    choices.save();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      check(!reads_remade(i, 1) || groups_.ops[i] != std::vector{static_cast<int>(i)},
            "{} '{}' reads what is not stored", name_of(op(i).kind), op(i).name);
    }
  }

  // Whether one of so many ops reads what the plan keeps no memory for.
  bool reads_remade(std::size_t first, std::size_t count) const {
    const auto missing = [&](TensorId id) { return id != graph::kNone && address(id) == nullptr; };
    for (std::size_t i = first; i < first + count; ++i) {
      if (std::ranges::any_of(op(i).inputs, missing)) return true;
    }
    return false;
  }

  // Each op is done by its own step; one that has none, by the step of the first of its kind.
  void group_alone() {
    groups_ = plan::each_alone(*plan_);
    groups_.weights = dtype();
    std::map<OpKind, std::size_t> firsts;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const std::size_t first = firsts.try_emplace(op(i).kind, i).first->second;
      if (!steps_[i]) groups_.ops[first].push_back(std::exchange(groups_.ops[i], {}).front());
    }
  }

  void group(std::size_t first, const std::vector<std::vector<int>>& does) {
    for (std::size_t i = 0; i < does.size(); ++i) {
      std::vector<int>& ops = groups_.ops[first + i] = does[i];
      for (int& position : ops) position += static_cast<int>(first);
    }
  }

  std::size_t fastest(const Ways& from, Choices& choices) {
    const std::int64_t known = choices.find(from.key);
    if (known >= 0 && known < static_cast<std::int64_t>(from.ways.size())) {
      return static_cast<std::size_t>(known);
    }
    const KeptMemory kept(from.kept);
    std::size_t best = 0;
    float best_time = 0.0F;
    for (std::size_t way = 0; way < from.ways.size(); ++way) {
      const float time = milliseconds(from.ways[way]);
      if (way == 0 || time < best_time) {
        best = way;
        best_time = time;
      }
    }
    choices.put(from.key, static_cast<std::int64_t>(best));
    return best;
  }

  // The best of a few runs. Nothing that matters lies in the memory they write yet.
  float milliseconds(const std::vector<Step>& steps) const {
    constexpr int kRepeats = 4, kRuns = 4;
    const Event begin = make_event(true), end = make_event(true);
    float best = 0.0F;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      check_cuda(cudaEventRecord(begin.get(), stream_.get()), "timing");
      for (int run = 0; run < kRuns; ++run) {
        for (const Step& step : steps) {
          if (step) step(stream_.get());
        }
      }
      check_cuda(cudaEventRecord(end.get(), stream_.get()), "timing");
      check_cuda(cudaEventSynchronize(end.get()), "timing");
      check_cuda(cudaGetLastError(), "timing");
      float time = 0.0F;
      check_cuda(cudaEventElapsedTime(&time, begin.get(), end.get()), "timing");
      if (repeat < 2 || time < best) best = time;  // the first warms up
    }
    return best;
  }

  Ways make(const graph::Op& op, const Places& places, const ConvSteps& convolutions, UpdateSteps& updates) {
    switch (op.kind) {
      case OpKind::conv:
      case OpKind::conv_grad_input:
      case OpKind::conv_grad_weight:
        return convolutions.make(op);
      default:
        return {"", {{make_only(op, places, updates)}}};
    }
  }

  Step make_only(const graph::Op& op, const Places& places, UpdateSteps& updates) {
    const OpView view(*plan_, op, places.address);
    switch (op.kind) {
      case OpKind::all_reduce:
        return reductions_->make(op);
      case OpKind::linear:
        return make_linear(view, weights(op.inputs[1], view.in_tensor(0).dtype), shared_);
      case OpKind::linear_grad_input:
        return make_linear_grad_input(view, weights(op.inputs[1], view.in_tensor(0).dtype), shared_);
      case OpKind::linear_grad_weight:
        return make_linear_grad_weight(view, shared_);
      default:
        return UpdateSteps::makes(op.kind) ? updates.make(op) : make_step(view, shared_);
    }
  }

  GraphExec capture(std::size_t begin, std::size_t end) {
    check_cuda(cudaStreamSynchronize(stream_.get()), "waiting for the device");
    clears_ = {};
    const Graph graph = capture_graph(stream_.get(), [&] {
      open_run();
      launch_overlapped(begin, end);
      close_run();
    });
    if (auto table = clears_.gather(graph.get(), cleared_before())) tables_.push_back(std::move(table));
    cudaGraphExec_t exec = nullptr;
    check_cuda(cudaGraphInstantiate(&exec, graph.get(), 0), "instantiating a step");
    return GraphExec(exec);
  }

  // Memory that is nobody else's from the beginning of a step to the op it belongs to: the sums that
  // convolutions add to, which the plan keeps free, and work space of single ops.
  std::vector<MemorySpan> cleared_before() const {
    std::vector<MemorySpan> spans{shared_.own_work()};
    for (const graph::Op& op : plan_->graph().ops()) {
      if (const TensorId sums = plan::sums_of(op); sums != graph::kNone)
        spans.push_back({address(sums), plan_->placement(sums).bytes});
    }
    return spans;
  }

  // Ops that may run beside the others go to a stream of their own; what waits for them joins it.
  void launch_overlapped(std::size_t begin, std::size_t end) {
    std::vector<Event> marks;
    const auto follow = [&](cudaStream_t later, cudaStream_t earlier) {
      marks.push_back(make_event(false));
      check_cuda(cudaEventRecord(marks.back().get(), earlier), "marking a step");
      check_cuda(cudaStreamWaitEvent(later, marks.back().get()), "ordering steps");
    };
    std::map<std::size_t, std::size_t> joins;  // op -> before which op it is done
    for (const plan::Beside& op : plan_->beside)
      joins[static_cast<std::size_t>(op.op)] = static_cast<std::size_t>(op.join);
    std::map<std::size_t, cudaEvent_t> waiting;             // before op -> event of the last op it waits for
    const bool whole = begin == 0 && end == steps_.size();  // else gradients wait for more, or are there
    const auto launched = [this](std::size_t op, cudaStream_t stream) {
      if (tracer_) tracer_->launched(stream, plan_->graph().ops()[op]);
    };
    reductions_->begin();
    bool used_beside = false;
    for (std::size_t i = begin; i < end; ++i) {
      if (const auto it = waiting.find(i); it != waiting.end()) {
        check_cuda(cudaStreamWaitEvent(stream_.get(), it->second), "ordering steps");
        waiting.erase(it);
      }
      if (whole && reductions_->before(i, stream_.get(), used_beside ? beside_.get() : nullptr, launched))
        continue;
      const auto beside = joins.find(i);
      if (beside == joins.end()) {
        launch(i, stream_.get());
        continue;
      }
      used_beside = true;
      follow(beside_.get(), stream_.get());
      launch(i, beside_.get());
      marks.push_back(make_event(false));
      check_cuda(cudaEventRecord(marks.back().get(), beside_.get()), "marking a step");
      waiting[std::min(beside->second, end)] = marks.back().get();
    }
    for (const auto& [op, event] : waiting) {
      check_cuda(cudaStreamWaitEvent(stream_.get(), event), "ordering steps");
    }
  }

  void launch(std::size_t i, cudaStream_t stream) {
    clears_.before(stream);
    if (steps_[i]) steps_[i](stream);
    clears_.after(stream);
    if (!reductions_->after(i, stream) && !steps_[i]) return;
    const cudaError_t result = cudaGetLastError();
    if (result != cudaSuccess) {
      const graph::Op& op = plan_->graph().ops()[i];
      throw InternalError("{} '{}': {}", name_of(op.kind), op.name, cudaGetErrorString(result));
    }
    if (tracer_) tracer_->launched(stream, plan_->graph().ops()[i]);
  }

  void run_timed(std::size_t begin, std::size_t end, std::vector<OpTime>& times) {
    std::vector<Event> events;
    const auto mark = [&] {
      events.push_back(make_event(true));
      check_cuda(cudaEventRecord(events.back().get(), stream_.get()), "timing");
      return events.size() - 1;
    };
    state_->before_run(stream_.get());
    open_run();
    std::vector<std::size_t> marks{mark()};  // an op without a step ends where it begins
    for (std::size_t i = begin; i < end; ++i) {
      launch(i, stream_.get());
      marks.push_back(steps_[i] ? mark() : marks.back());
    }
    close_run();
    state_->after_run(stream_.get());
    check_cuda(cudaStreamSynchronize(stream_.get()), "waiting for the device");
    times.clear();
    for (std::size_t i = begin; i < end; ++i) {
      float start = 0.0F, duration = 0.0F;
      const std::size_t from = marks[i - begin], to = marks[i - begin + 1];
      cudaEventElapsedTime(&start, events[0].get(), events[from].get());
      if (from != to) cudaEventElapsedTime(&duration, events[from].get(), events[to].get());
      const auto nanoseconds = [](float ms) {
        return std::chrono::nanoseconds(static_cast<std::int64_t>(ms * 1e6F));
      };
      times.push_back({static_cast<int>(i), nanoseconds(start), nanoseconds(duration)});
    }
  }

  std::shared_ptr<const plan::Plan> plan_;
  FirstClears clears_;                                 // of the graph that is being captured
  std::vector<std::shared_ptr<DeviceMemory>> tables_;  // that graphs read
  std::shared_ptr<CuptiTracer> tracer_;                // null unless one was there when this was compiled
  std::shared_ptr<CudaState> state_;
  Stream stream_, beside_, copies_;
  std::unique_ptr<Reductions> reductions_;
  Shared shared_;
  PlacedTensors<DeviceMemory> tensors_;
  std::map<TensorId, InputSlots> inputs_;
  DeviceMemory record_;       // of the last run: a RunRecord
  Metrics::Time launched_{};  // the last run, by the host
  MetricsRing metrics_;
  std::vector<Step> steps_;  // by op
  plan::Groups groups_;
  GraphExec graphs_[3];  // by section
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const DeviceOptions& options)
      : deterministic_(options.deterministic), tf32_(options.tf32), input_copy_(options.input_copy) {
    const int device = take_device(options.communicator.get(), gpu_number(options.device));
    check_cuda(cudaGetDeviceProperties(&properties_, device), "asking about the device");
    check_architecture(properties_);
    check_input_copy(input_copy_);
    clock_ = std::make_shared<DeviceClock>();
    std::string cache;
    if (!options.cache_dir.empty()) {
      int driver = 0;
      cudaDriverGetVersion(&driver);
      std::string card = properties_.name;
      for (char& c : card) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
      cache = fmt::format("{}/kernels-{}-{}-cudnn{}-driver{}{}.txt", options.cache_dir, kChoicesVersion, card,
                          cudnn_version(), driver, tf32_ ? "-tf32" : "");
    }
    choices_ = std::make_unique<Choices>(deterministic_ ? "" : cache);
    convs_ = make_conv_library(*choices_, {deterministic_, tf32_});
    if (options.communicator != nullptr) nccl_ = std::make_shared<Nccl>(options.communicator);
  }

  // In fp32 nothing fuses, and the norm's own two passes are more exact.
  bool conv_gives_sums(DType dtype) const override { return dtype != DType::f32; }
  bool supports(OpKind, DType dtype) const override { return dtype != DType::u8 && dtype != DType::i32; }
  DType weight_gradient(DType activations) const override { return activations; }
  int weight_gradients_beside() const override { return 2; }
  bool synchronises_norms() const override { return true; }
  int input_stays(const graph::Graph& graph, int op) const override {
    return properties_.major == 9 ? ops_merged_after(graph, static_cast<std::size_t>(op)) : 0;
  }

  bool remakes(const graph::Graph& graph, TensorId id) const override {
    return properties_.major == 9 && is_remade(graph, id);
  }

  Layout layout(const graph::Graph& graph, TensorId id) const override {
    return layout_of(graph, id, properties_.major);
  }

  std::string name() const override { return "cuda"; }
  bool runs_ahead() const override { return true; }
  std::string description() const override {
    return fmt::format("cuda: {}, {} GiB, compute capability {}.{}, cuDNN {}{}", properties_.name,
                       properties_.totalGlobalMem >> 30, properties_.major, properties_.minor,
                       cudnn_version(), nccl_ ? ", NCCL " + nccl_->version() : "");
  }
  std::shared_ptr<State> make_state() override { return std::make_shared<CudaState>(); }
  std::optional<Backend::DeviceMemory> device_memory() const override { return free_memory(); }
  std::size_t memory_overhead(const plan::Plan& plan, bool owns_weights) const override {
    return overhead_of(plan, owns_weights);
  }
  HostAllocator input_allocator() const override { return host_allocator(input_copy_); }
  std::unique_ptr<Executable> compile(std::shared_ptr<const plan::Plan> plan,
                                      std::shared_ptr<State> state) override {
    auto own = std::dynamic_pointer_cast<CudaState>(std::move(state));
    check(own != nullptr, "the state was made by another backend");
    return std::make_unique<CudaExecutable>(std::move(plan), std::move(own), *convs_, *choices_,
                                            ConvRules{deterministic_, tf32_}, input_copy_, properties_,
                                            tracer_.lock(), nccl_, clock_);
  }
  std::shared_ptr<ImageDecoder> make_image_decoder() override { return make_jpeg_decoder(); }
  std::shared_ptr<Tracer> make_tracer() override {
    auto tracer = std::make_shared<CuptiTracer>();
    tracer_ = tracer;
    return tracer;
  }
  std::shared_ptr<MemoryStudy> make_memory_study() override { return cuda::make_memory_study(); }
  std::string pci_address() const override {
    return fmt::format("{:04x}:{:02x}:{:02x}.0", properties_.pciDomainID, properties_.pciBusID,
                       properties_.pciDeviceID);
  }

 private:
  // Of what the numbers in a file of choices mean; raised when ways are added or put in another order.
  static constexpr int kChoicesVersion = 4;

  bool deterministic_, tf32_;
  InputCopy input_copy_;
  cudaDeviceProp properties_{};
  std::weak_ptr<CuptiTracer> tracer_;  // for plans compiled while it is there
  std::unique_ptr<Choices> choices_;
  std::unique_ptr<ConvLibrary> convs_;
  std::shared_ptr<Nccl> nccl_;
  std::shared_ptr<DeviceClock> clock_;
};

}  // namespace
}  // namespace redline::backend

extern "C" __attribute__((visibility("default"))) redline::backend::Backend* redline_make_cuda_backend(
    const redline::backend::DeviceOptions* options) {
  return new redline::backend::CudaBackend(*options);
}
