#include "backend/cpu/cpu.h"

#include <utility>
#include <vector>

#include "backend/cpu/kernels/dispatch.h"
#include "backend/cpu/memory_study.h"
#include "backend/cpu/onednn_info.h"
#include "backend/cpu/step.h"
#include "backend/cpu/thread_tracer.h"
#include "backend/cpu/threads.h"
#include "backend/host/executable.h"
#include "base/error.h"
#include "base/machine.h"
#include "graph/operands.h"

namespace redline::backend {
namespace {

using graph::DType;
using graph::OpKind;
using plan::Layout;

cpu::StepMaker maker_of(OpKind kind) {
  using namespace cpu;
  switch (kind) {
    case OpKind::normalize_image:
      return make_normalize_image;
    case OpKind::conv:
      return make_conv;
    case OpKind::batch_norm:
      return make_batch_norm;
    case OpKind::relu:
      return make_relu;
    case OpKind::add:
      return make_add;
    case OpKind::max_pool:
    case OpKind::affine_pool:
      return make_max_pool;
    case OpKind::avg_pool:
      return make_avg_pool;
    case OpKind::local_avg_pool:
      return make_local_avg_pool;
    case OpKind::linear:
      return make_linear;
    case OpKind::softmax_cross_entropy:
      return make_softmax_cross_entropy;
    case OpKind::norm_stats:
      return make_norm_stats;
    case OpKind::affine_act:
      return make_affine_act;
    case OpKind::conv_grad_input:
      return make_conv_grad_input;
    case OpKind::conv_grad_weight:
      return make_conv_grad_weight;
    case OpKind::batch_norm_grad:
      return make_batch_norm_grad;
    case OpKind::relu_grad:
      return make_relu_grad;
    case OpKind::max_pool_grad:
      return make_max_pool_grad;
    case OpKind::avg_pool_grad:
      return make_avg_pool_grad;
    case OpKind::local_avg_pool_grad:
      return make_local_avg_pool_grad;
    case OpKind::linear_grad_input:
      return make_linear_grad_input;
    case OpKind::linear_grad_weight:
      return make_linear_grad_weight;
    case OpKind::norm_grad_stats:
      return make_norm_grad_stats;
    case OpKind::norm_grad_apply:
      return make_norm_grad_apply;
    case OpKind::snapshot:
      return make_snapshot;
    case OpKind::accumulate:
      return make_accumulate;
    case OpKind::all_reduce:
      return make_all_reduce;
    case OpKind::gradient_check:
      return make_gradient_check;
    case OpKind::restore:
      return make_restore;
    case OpKind::sgd:
      return make_sgd;
    case OpKind::lars:
      return make_lars;
    case OpKind::adamw:
      return make_adamw;
    case OpKind::lamb:
      return make_lamb;
    case OpKind::ema:
      return make_ema;
  }
  throw InternalError("unknown op kind {}", static_cast<int>(kind));
}

class CpuExecutable final : public HostExecutable {
 public:
  CpuExecutable(std::shared_ptr<const plan::Plan> plan, const std::shared_ptr<State>& state,
                const cpu::Threads& threads, const DeviceOptions& options)
      : HostExecutable(std::move(plan), state, options), threads_(threads) {
    const cpu::Threads::Lead lead(threads_);  // oneDNN sizes its scratch by the team it sees
    const auto& ops = HostExecutable::plan().graph().ops();
    for (const graph::Op& op : ops) {
      const OpView view(
          HostExecutable::plan(), op, [this](graph::TensorId id) { return address(id); }, collectives());
      steps_.push_back(maker_of(op.kind)(view, scratch_));
    }
    scratch_.allocate();
  }

  void run(Section section, std::vector<OpTime>* times) override {
    const cpu::Threads::Lead lead(threads_);
    HostExecutable::run(section, times);
  }

  ExecutableMemory memory() const override {
    ExecutableMemory use = HostExecutable::memory();
    use.scratch = scratch_.size();
    return use;
  }

 private:
  void execute(std::size_t op) override { steps_[op](); }

  cpu::Threads threads_;
  cpu::Scratch scratch_;
  std::vector<cpu::Step> steps_;  // by op
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const DeviceOptions& options)
      : options_(options), threads_(options.threads, options.pin_threads) {}

  bool supports(OpKind, DType dtype) const override {
    return dtype == DType::bf16 ? onednn_info().avx512 : dtype != DType::f16;
  }

  bool synchronises_norms() const override { return true; }

  Layout layout(const graph::Graph& graph, graph::TensorId id) const override {
    const graph::Tensor& tensor = graph.tensor(id);
    if (tensor.shape.rank() != 4) return Layout::plain;
    switch (tensor.kind) {
      case graph::TensorKind::input:
        return tensor.dtype == DType::u8 ? Layout::channels_last : Layout::plain;
      case graph::TensorKind::activation:
        return is_image(graph, id) ? Layout::plain : Layout::blocked16;
      default:
        return Layout::weights16;
    }
  }

  std::string name() const override { return "cpu"; }
  std::string description() const override {
    return fmt::format("cpu: oneDNN {}, {} kernels, {} thread{}", onednn_info().version, cpu::kernel_isa(),
                       threads_.count(), threads_.count() == 1 ? "" : "s");
  }
  // Without instructions for it, bf16 is emulated and slower.
  std::optional<DType> mixed_precision() const override {
    const CpuFeatures features = inspect_machine().features;
    const bool native = features.avx512_bf16 || features.amx_bf16;
    return native && supports(OpKind::conv, DType::bf16) ? std::optional(DType::bf16) : std::nullopt;
  }
  std::shared_ptr<State> make_state() override { return std::make_shared<HostState>(); }
  std::shared_ptr<Tracer> make_tracer() override { return std::make_shared<cpu::ThreadTracer>(threads_); }
  // Convolutions keep reordered copies of their weights.
  std::size_t memory_overhead(const plan::Plan& plan, bool owns_weights) const override {
    return owns_weights ? plan::memory_use(plan).parameters : 0;
  }
  std::unique_ptr<Executable> compile(std::shared_ptr<const plan::Plan> plan,
                                      std::shared_ptr<State> state) override {
    return std::make_unique<CpuExecutable>(std::move(plan), state, threads_, options_);
  }

 private:
  // Three channels are not worth a block of sixteen; oneDNN's stem reads planes.
  static bool is_image(const graph::Graph& graph, graph::TensorId id) {
    for (const graph::Op& op : graph.ops()) {
      if (op.kind == OpKind::normalize_image && op.outputs[graph::operands::NormalizeImage::x] == id)
        return true;
    }
    return false;
  }

  const DeviceOptions options_;
  cpu::Threads threads_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const DeviceOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

std::shared_ptr<MemoryStudy> make_cpu_memory_study(const DeviceOptions& options) {
  return cpu::make_memory_study(cpu::Threads(options.threads, options.pin_threads).count());
}

}  // namespace redline::backend
