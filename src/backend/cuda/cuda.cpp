// The plugin: device, state, executable, and the entry that the program looks up.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "backend/backend.h"
#include "backend/cuda/clears.h"
#include "backend/cuda/groups.h"
#include "backend/cuda/host_copy.h"
#include "backend/cuda/jpeg.h"
#include "backend/cuda/layouts.h"
#include "backend/cuda/metrics_ring.h"
#include "backend/cuda/reductions.h"
#include "backend/cuda/state.h"
#include "backend/cuda/trace.h"
#include "backend/cuda_plugin.h"
#include "backend/placed_tensors.h"
#include "base/build_info.h"
#include "base/clock.h"
#include "base/log.h"

namespace redline::backend {
namespace {

using namespace cuda;
using graph::DType;
using graph::OpKind;
using graph::TensorId;
using graph::TensorKind;
using plan::Layout;
using plan::Region;

// What a backend's executables share.
struct Device {
  ChoosingRules rules;
  ChoosingTime choosing;  // before a first step
  double comparing;       // as DeviceOptions
  InputCopy input_copy;
  ChoosingTime choosing_left = choosing;
  cudaDeviceProp properties{};
  std::unique_ptr<Choices> choices = {};
  std::unique_ptr<ConvLibrary> convs = {};
  std::shared_ptr<Nccl> nccl = {};
  std::shared_ptr<DeviceClock> clock = {};
};

ChoosingTime choosing_time(const DeviceOptions& options) {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  if (options.deterministic || options.candidate >= 0) return {0, 0};
  return options.tuning == Tuning::start ? ChoosingTime{} : ChoosingTime{kAny, kAny};
}

// A step as one CUDA graph.
struct StepGraph {
  std::shared_ptr<DeviceMemory> table;  // that the graph reads; null if it needs none
  GraphExec exec;
};

class CudaExecutable final : public Executable, public GroupLauncher {
 public:
  CudaExecutable(std::shared_ptr<const plan::Plan> plan, std::shared_ptr<CudaState> state, Device& device,
                 std::shared_ptr<KernelTracer> tracer)
      : device_(device),
        plan_(std::move(plan)),
        tracer_(std::move(tracer)),
        state_(std::move(state)),
        shared_(*device.convs, device.properties, device.rules.tf32, device.nccl),
        tensors_(*plan_, *state_),
        metrics_(device.clock) {
    for (TensorId id : plan_->graph().of_kind(TensorKind::input)) {
      if (address(id) != nullptr) inputs_.try_emplace(id, plan_->placement(id).bytes, device.input_copy);
    }
    reductions_ =
        std::make_unique<Reductions>(*plan_, device.nccl, [this](TensorId id) { return address(id); });
    ChoosingRules rules = device.rules;
    rules.in_step = rules.in_step && !tracer_ && trains_in_one_run();
    chosen_ = choose(rules);
  }

  ~CudaExecutable() override { cudaStreamSynchronize(stream_.get()); }

  const plan::Plan& plan() const override { return *plan_; }

  void write_input(TensorId id, const void* data, std::size_t bytes, Lease lease) override {
    const std::size_t expected = plan_->placement(id).bytes;
    check(bytes == expected, "input '{}' has {} bytes, not {}", plan_->graph().tensor(id).name, expected,
          bytes);
    inputs_.at(id).write(data, bytes, placed(id), copies_.get(), stream_.get(), std::move(lease));
  }

  void take_images(TensorId id, const DeviceImages& images) override {
    const auto* own = dynamic_cast<const CudaImages*>(&images);
    check(own != nullptr, "images in the memory of another device");
    own->copy_to(placed(id), plan_->placement(id).bytes, stream_.get());
  }

  std::pair<std::size_t, std::size_t> groups_of(Section section) const override {
    const auto border = static_cast<std::size_t>(plan_->update_begin);
    return {section == Section::update ? border : 0,
            section == Section::compute ? border : plan_->groups.size()};
  }
  const graph::Op& lead(std::size_t i) const override {
    return plan_->graph().ops()[static_cast<std::size_t>(plan::lead_of(plan_->graph(), plan_->groups[i]))];
  }
  void open_run() override { stamp(&run_record()->begin, stream_.get()); }
  void launch_group(std::size_t i) override { launch(i, stream_.get()); }
  void close_run() override {
    end_run(run_record(), reinterpret_cast<const float*>(address(plan_->model.metrics)),
            reinterpret_cast<const float*>(address(plan_->check)), reductions_->exposed(), stream_.get());
    check_cuda(cudaGetLastError(), "recording a run");
  }
  cudaStream_t stream() const override { return stream_.get(); }

  void run(Section section, std::vector<OpTime>* times) override {
    const auto [begin, end] = groups_of(section);
    if (begin == end) return;
    if (times == nullptr && !chosen_.alternatives.empty() && end - begin == steps().size()) compare_kernels();
    launched_ = std::chrono::steady_clock::now();
    device_.choosing_left = device_.choosing;
    if (times != nullptr) return run_timed(begin, end, *times);
    StepGraph& graph = graphs_[static_cast<std::size_t>(section)];
    if (!graph.exec) graph = capture(begin, end);
    state_->before_run(stream_.get());
    launch(graph);
    state_->after_run(stream_.get());
  }

  void read(TensorId id, std::span<float> values) const override {
    std::vector<std::byte> host(plan_->placement(id).bytes);
    copy_async(host.data(), placed(id), host.size(), stream_.get());
    wait_for(stream_.get());
    plan::load(plan_->graph().tensor(id), plan_->placement(id).layout, host.data(), values);
  }

  void request_metrics() override { metrics_.request(run_record(), launched_, stream_.get()); }
  std::optional<Metrics> take_metrics(bool wait) override {
    if (wait) reductions_->await([&] { return metrics_.ready(); });
    auto metrics = metrics_.take(wait);
    for (auto& [id, slots] : inputs_) slots.give_back_read();
    return metrics;
  }

  void write(TensorId id, std::span<const float> values) override {
    const graph::Tensor& tensor = plan_->graph().tensor(id);
    if (plan_->placement(id).region == Region::state) return state_->write(tensor.name, values);
    std::vector<std::byte> host(plan_->placement(id).bytes);
    plan::store(tensor, plan_->placement(id).layout, values, host.data());
    wait_for(stream_.get());
    upload(placed(id), host);
  }

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
  RunRecord* run_record() const { return reinterpret_cast<RunRecord*>(record_.data()); }
  std::byte* address(TensorId id) const { return tensors_.find(id); }
  std::byte* placed(TensorId id) const { return tensors_.at(id); }
  // Weights as kernels of activations of `dtype` read them.
  std::byte* weights(TensorId id, DType dtype) {
    const graph::Tensor& tensor = plan_->graph().tensor(id);
    return plan_->placement(id).region == Region::state ? state_->copy(tensor.name, dtype) : address(id);
  }

  const std::vector<Step>& steps() const { return chosen_.steps; }
  // Whether a run is a whole training step: not in evaluation, nor if gradients are accumulated.
  bool trains_in_one_run() const {
    return static_cast<std::size_t>(plan_->update_begin) < plan_->groups.size() &&
           std::ranges::none_of(plan_->graph().ops(),
                                [](const graph::Op& op) { return op.kind == OpKind::accumulate; });
  }
  Chosen choose(const ChoosingRules& rules) {
    Chosen found = choose_steps(*plan_,
                                {[this](TensorId id) { return address(id); },
                                 [this](TensorId id, DType dtype) { return weights(id, dtype); }},
                                tensors_.arena(), tensors_.gradients(), shared_, *device_.choices, rules,
                                device_.choosing_left);
    for (std::size_t i = 0; i < found.steps.size(); ++i) {
      if (Step exchange = reductions_->make(i)) found.steps[i] = std::move(exchange);
    }
    return found;
  }

  // Chooses among close candidates by the time of whole steps: with the first batch, at the clocks and the
  // power of training. The state is put back.
  void compare_kernels() {
    log_info("comparing kernels by the time of whole steps: {} choices are close",
             chosen_.alternatives.size());
    const Stopwatch watch;
    StepComparison found;
    bool done = false;
    std::optional<StateBackup> backup;
    try {
      backup.emplace(*state_);
      found = compare_in_step(chosen_.alternatives, *device_.choices,
                              {step_builder(*backup), device_.comparing, [&] { return watch.seconds(); },
                               device_.rules.stop, device_.rules.progress});
      done = !found.stopped;
    } catch (const OutOfMemoryError&) {
      log_warning("kernels are not compared in the step: there is not enough memory on the GPU");
    }
    if (backup) backup->restore(stream_.get());
    wait_for(stream_.get());
    if (found.change && found.change->beyond_noise() && found.change->change < 0)
      log_info("other kernels make a step {:.1f}% shorter: {:.2f} ms instead of {:.2f}",
               -100 * found.change->change, 1e3 * found.after, 1e3 * found.before);
    if (done) device_.choices->put(chosen_.compared, "compared");
    device_.choices->save();
    shared_.clear();
    ChoosingRules rules = device_.rules;
    rules.in_step = false;
    chosen_ = choose(rules);  // as remembered, with no more memory than that needs
  }

  // Builds the step with other candidates, on the state as it was.
  std::function<TimedStep(const std::vector<std::size_t>&)> step_builder(const StateBackup& state) {
    std::vector<std::map<std::size_t, std::vector<Step>>> made;  // for each alternatives, by group
    for (const Alternatives& one : chosen_.alternatives) {
      auto& by_group = made.emplace_back();
      for (const std::size_t group : one.questions) {
        for (const std::size_t c : one.candidates)
          by_group[group].push_back(chosen_.candidates[group].list[c].make());
      }
    }
    shared_.allocate();
    return [this, &state, made = std::move(made)](const std::vector<std::size_t>& choice) {
      for (std::size_t i = 0; i < choice.size(); ++i) {
        for (const auto& [group, steps] : made[i]) chosen_.steps[group] = steps[choice[i]];
      }
      state.restore(stream_.get());
      return timed(std::make_shared<const StepGraph>(capture(0, steps().size())));
    };
  }
  TimedStep timed(std::shared_ptr<const StepGraph> graph) {
    constexpr double kLong = 0.05;  // seconds of a measurement
    const auto time = [this, graph](int runs) {
      return timer_.seconds(stream_.get(), [&] {
        for (int i = 0; i < runs; ++i) launch(*graph);
      }) / runs;
    };
    time(1);
    const int runs = std::clamp(static_cast<int>(kLong / time(1)), 1, 100);
    time(runs);  // the GPU idled while the step was built
    return [=] { return time(runs); };
  }

  StepGraph capture(std::size_t begin, std::size_t end) {
    wait_for(stream_.get());
    clears_ = {};
    const Graph graph = capture_graph(stream_.get(), [&] {
      open_run();
      if (tracer_) tracer_->launched(stream_.get(), nullptr);  // its stamp belongs to no op
      launch_overlapped(begin, end);
      close_run();
    });
    auto table = clears_.gather(graph.get(), cleared_before());
    return {std::move(table), instantiate(graph)};
  }
  void launch(const StepGraph& graph) {
    check_cuda(cudaGraphLaunch(graph.exec.get(), stream_.get()), "launching a step");
  }

  // Memory that nothing else uses from the start of a step to the group that it belongs to: the sums of
  // convolutions, which the plan reserves from the start, and the work space of single groups.
  std::vector<std::span<const std::byte>> cleared_before() const {
    std::vector<std::span<const std::byte>> spans{shared_.own_work()};
    for (const graph::Op& op : plan_->graph().ops()) {
      if (const TensorId sums = plan::sums_of(op); sums != graph::kNone)
        spans.push_back({address(sums), plan_->placement(sums).bytes});
    }
    return spans;
  }

  // Puts groups on their streams; the main stream waits for the side stream where the plan joins them.
  void launch_overlapped(std::size_t begin, std::size_t end) {
    std::map<std::size_t, Event> joins;  // before group -> end of the last one it waits for
    const bool whole = begin == 0 && end == steps().size();  // else no bucket is exchanged early
    const auto launched = [this](std::size_t group, cudaStream_t stream) {
      if (tracer_) tracer_->launched(stream, &lead(group));
    };
    reductions_->begin();
    bool used_side = false;
    for (std::size_t i = begin; i < end; ++i) {
      if (const auto join = joins.extract(i)) follow(stream_.get(), join.mapped());
      if (whole && reductions_->before(i, stream_.get(), used_side ? side_.get() : nullptr, launched))
        continue;
      const plan::Group& group = plan_->groups[i];
      if (!group.side_stream) {
        launch(i, stream_.get());
        continue;
      }
      used_side = true;
      follow(side_.get(), stream_.get());
      launch(i, side_.get());
      joins[std::min(static_cast<std::size_t>(group.join), end)] = recorded(side_.get());
    }
    for (const auto& [group, event] : joins) follow(stream_.get(), event);
  }

  void launch(std::size_t i, cudaStream_t stream) {
    clears_.before(stream);
    steps()[i](stream);
    clears_.after(stream);
    reductions_->after(i, stream);
    if (const cudaError_t result = cudaGetLastError(); result != cudaSuccess) {
      const graph::Op& op = lead(i);
      throw InternalError("{} '{}': {}", name_of(op.kind), op.name, cudaGetErrorString(result));
    }
    if (tracer_) tracer_->launched(stream, &lead(i));
  }

  void run_timed(std::size_t begin, std::size_t end, std::vector<OpTime>& times) {
    std::vector<Event> events;
    const auto mark = [&] {
      events.push_back(make_event(true));
      record(events.back(), stream_.get());
    };
    state_->before_run(stream_.get());
    open_run();
    mark();
    for (std::size_t i = begin; i < end; ++i) {
      launch(i, stream_.get());
      mark();
    }
    close_run();
    state_->after_run(stream_.get());
    wait_for(stream_.get());
    times.clear();
    const auto between = [&](std::size_t from, std::size_t to) {
      return std::chrono::nanoseconds(std::llround(1e9 * seconds_between(events[from], events[to])));
    };
    for (std::size_t i = 0; i < end - begin; ++i)
      times.push_back({static_cast<int>(begin + i), between(0, i), between(i, i + 1)});
  }

  Device& device_;
  std::shared_ptr<const plan::Plan> plan_;
  FirstClears clears_;                    // of the graph that is being captured
  std::shared_ptr<KernelTracer> tracer_;  // null if none existed when this was compiled
  std::shared_ptr<CudaState> state_;
  Stream stream_ = make_stream(/*urgent=*/true), side_ = make_stream(), copies_ = make_stream();
  std::unique_ptr<Reductions> reductions_;
  Shared shared_;
  PlacedTensors<DeviceMemory> tensors_;
  std::map<TensorId, InputSlots> inputs_;
  DeviceMemory record_{sizeof(RunRecord)};  // of the last run
  Metrics::Time launched_{};                // the last run, by the host
  MetricsRing metrics_;
  Chosen chosen_;
  StepGraph graphs_[3];  // by section
  DeviceTimer timer_;
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const DeviceOptions& options)
      : device_{{options.deterministic, options.tf32, options.stop, options.tuning_progress,
                 options.candidate, options.tuning == Tuning::step && options.communicator == nullptr},
                choosing_time(options),
                options.comparing,
                options.input_copy} {
    const int number = take_device(options.communicator.get(), gpu_number(options.device));
    check_cuda(cudaGetDeviceProperties(&device_.properties, number), "querying the device");
    check_architecture(device_.properties);
    check_input_copy(device_.input_copy);
    device_.clock = std::make_shared<DeviceClock>();
    const ChoosingRules& rules = device_.rules;
    device_.choices = std::make_unique<Choices>(rules.deterministic ? "" : choices_file(options.cache_dir));
    device_.convs = make_conv_library({rules.deterministic, rules.tf32});
    if (options.communicator != nullptr) device_.nccl = std::make_shared<Nccl>(options.communicator);
  }

  // In fp32 nothing fuses, and the norm's own two passes are more exact.
  bool conv_gives_sums(DType dtype) const override { return dtype != DType::f32; }
  bool supports(OpKind, DType dtype) const override {
    return dtype == DType::f32 || dtype == DType::f16 || (dtype == DType::bf16 && has_ampere_code());
  }
  DType weight_gradient(DType activations) const override { return activations; }
  DType weight_copy(DType activations) const override { return activations; }
  std::vector<plan::GroupRow> group_rows() const override { return cuda::group_rows(has_hopper_kernels()); }
  int side_stream_groups() const override { return 2; }
  bool synchronises_norms() const override { return true; }
  Layout layout(const graph::Graph& graph, TensorId id) const override {
    return layout_of(graph, id, has_hopper_kernels());
  }

  std::string name() const override { return "cuda"; }
  bool runs_ahead() const override { return true; }
  std::optional<DType> mixed_precision() const override { return DType::f16; }
  bool has_tf32() const override { return has_ampere_code(); }
  std::string description() const override {
    return fmt::format("cuda: {}, {} GiB, compute capability {}.{}{}, cuDNN {}{}", device_.properties.name,
                       device_.properties.totalGlobalMem >> 30, device_.properties.major,
                       device_.properties.minor, of_older_code(device_.properties), cudnn_version(),
                       device_.nccl ? ", NCCL " + device_.nccl->version() : "");
  }
  std::shared_ptr<State> make_state() override { return std::make_shared<CudaState>(); }
  std::optional<Backend::DeviceMemory> device_memory() const override { return free_memory(); }
  std::size_t memory_overhead(const plan::Plan& plan, bool owns_weights) const override {
    return overhead_of(plan, owns_weights);
  }
  HostAllocator input_allocator() const override { return host_allocator(device_.input_copy); }
  std::unique_ptr<Executable> compile(std::shared_ptr<const plan::Plan> plan,
                                      std::shared_ptr<State> state) override {
    auto own = std::dynamic_pointer_cast<CudaState>(std::move(state));
    check(own != nullptr, "the state was made by another backend");
    return std::make_unique<CudaExecutable>(std::move(plan), std::move(own), device_, tracer_.lock());
  }
  std::shared_ptr<ImageDecoder> make_image_decoder() override { return make_jpeg_decoder(); }
  std::shared_ptr<Tracer> make_tracer() override {
    auto tracer = make_kernel_tracer();
    tracer_ = tracer;
    return tracer;
  }
  std::string pci_address() const override {
    return fmt::format("{:04x}:{:02x}:{:02x}.0", device_.properties.pciDomainID, device_.properties.pciBusID,
                       device_.properties.pciDeviceID);
  }

 private:
  // Its name has everything besides the key that a choice depends on. Empty without a folder.
  std::string choices_file(const std::string& folder) const {
    if (folder.empty()) return {};
    std::string driver;
    if (!std::getline(std::ifstream("/sys/module/nvidia/version"), driver)) {
      int cuda = 0;  // the CUDA that the driver was made for, which several drivers share
      cudaDriverGetVersion(&cuda);
      driver = fmt::format("{}", cuda);
    }
    const BuildInfo build = build_info();
    const DeviceCode& code = device_code();
    std::string name =
        fmt::format("kernels-{}-driver{}-cudnn{}-redline{}-{}-sm{}{}{}", device_.properties.name, driver,
                    cudnn_version(), build.version, build.commit, code.architecture, code.hopper ? "a" : "",
                    device_.rules.tf32 ? "-tf32" : "");
    for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) || c == '.' ? c : '-';
    return folder + "/" + name + ".txt";
  }

  Device device_;
  std::weak_ptr<KernelTracer> tracer_;  // for plans that are compiled while it exists
};

}  // namespace
}  // namespace redline::backend

extern "C" __attribute__((visibility("default"))) redline::backend::Backend* redline_make_cuda_backend(
    const redline::backend::DeviceOptions* options) {
  return new redline::backend::CudaBackend(*options);
}
