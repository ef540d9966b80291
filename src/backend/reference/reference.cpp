#include "backend/reference/reference.h"

#include <algorithm>
#include <utility>

#include "backend/host/executable.h"
#include "backend/reference/kernels.h"

namespace redline::backend {
namespace {

using graph::kNone;
using graph::TensorId;
using plan::Region;

constexpr std::byte kPoison{0xFF};  // NaN in every floating-point dtype

class ReferenceExecutable final : public HostExecutable {
 public:
  ReferenceExecutable(std::shared_ptr<const plan::Plan> plan, const std::shared_ptr<State>& state,
                      const DeviceOptions& options)
      : HostExecutable(std::move(plan), state, options) {
    find_dying();
    for (std::size_t i = 0; i < this->plan().placements.size(); ++i) {
      if (this->plan().placements[i].region == Region::arena) poison(static_cast<TensorId>(i));
    }
  }

 private:
  void execute(std::size_t position) override {
    const graph::Op& op = plan().graph().ops()[position];
    std::vector<std::byte*> memory;
    for (const auto* ids : {&op.inputs, &op.outputs}) {
      for (TensorId id : *ids) memory.push_back(address(id));
    }
    reference::Arguments args(plan().graph(), op, memory);
    reference::kernel_of(op.kind)(args);
    args.commit();
    for (TensorId id : dying_[position]) poison(id);
  }

  void poison(TensorId id) { std::fill_n(address(id), plan().placement(id).bytes, kPoison); }

  // For each op, the arena tensors that may not be read after it. Tensors that no op writes belong to the
  // caller, and those that live to the last op may be read by the host.
  void find_dying() {
    const auto& ops = plan().graph().ops();
    dying_.resize(ops.size());
    std::vector<bool> written(plan().placements.size(), false);
    for (const graph::Op& op : ops) {
      for (TensorId id : op.outputs) {
        if (id != kNone) written[static_cast<std::size_t>(id)] = true;
      }
    }
    for (std::size_t i = 0; i < written.size(); ++i) {
      const plan::Placement& placement = plan().placements[i];
      if (placement.region != Region::arena || !written[i]) continue;
      const auto last = static_cast<std::size_t>(placement.last);
      if (last + 1 < ops.size() && !overwritten_by(ops[last], placement)) {
        dying_[last].push_back(static_cast<TensorId>(i));
      }
    }
  }

  // An op may have been planned to write its output over an input that dies with it.
  bool overwritten_by(const graph::Op& op, const plan::Placement& dying) const {
    return std::ranges::any_of(op.outputs, [&](TensorId id) {
      if (id == kNone) return false;
      const plan::Placement& output = plan().placement(id);
      return output.region == Region::arena && &output != &dying && output.offset == dying.offset;
    });
  }

  std::vector<std::vector<TensorId>> dying_;  // by op
};

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(const DeviceOptions& options) : options_(options) {}
  bool supports(graph::OpKind, graph::DType) const override { return true; }

  // Images come as bytes in the order in which decoders write them.
  plan::Layout layout(const graph::Graph& graph, TensorId id) const override {
    const graph::Tensor& tensor = graph.tensor(id);
    const bool images = tensor.kind == graph::TensorKind::input && tensor.dtype == graph::DType::u8;
    return images ? plan::Layout::channels_last : plan::Layout::plain;
  }

  std::string name() const override { return "reference"; }
  std::string description() const override { return "reference: plain loops, 1 thread"; }
  std::shared_ptr<State> make_state() override { return std::make_shared<HostState>(); }
  std::size_t memory_overhead(const plan::Plan&, bool) const override { return 0; }

  std::unique_ptr<Executable> compile(std::shared_ptr<const plan::Plan> plan,
                                      std::shared_ptr<State> state) override {
    return std::make_unique<ReferenceExecutable>(std::move(plan), state, options_);
  }

 private:
  const DeviceOptions options_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend(const DeviceOptions& options) {
  return std::make_unique<ReferenceBackend>(options);
}

}  // namespace redline::backend
