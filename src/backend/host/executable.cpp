#include "backend/host/executable.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "backend/stored_copy.h"
#include "base/error.h"
#include "plan/layout.h"

namespace redline::backend {

using Clock = std::chrono::steady_clock;

void HostState::read(const std::string& name, std::span<float> values) const {
  const auto& from = entry(name);
  plan::load(from.tensor, from.layout, from.memory.data(), values);
}

void HostState::write(const std::string& name, std::span<const float> values) {
  const auto& to = entry(name);
  plan::store(to.tensor, to.layout, values, to.memory.data());
}

void HostState::swap(std::span<const NamePair> pairs) {
  for (const auto& [first, second] : pairs) {
    const auto [a, b] = same_form(first, second);
    std::swap_ranges(a->memory.data(), a->memory.data() + a->memory.size(), b->memory.data());
  }
}

class HostStateCopy final : public StoredCopy<HostMemory> {
 public:
  template <typename Entries>
  explicit HostStateCopy(const Entries& entries) : StoredCopy(entries) {
    std::memset(memory().data(), 0, memory().size());  // its pages are there before the first copy
  }
  void take() override {
    for (const auto& [name, item] : items()) std::memcpy(target(item), item.source, item.bytes);
  }
};

std::unique_ptr<StateCopy> HostState::make_copy() { return std::make_unique<HostStateCopy>(entries()); }

namespace {

std::shared_ptr<HostState> own_state(const std::shared_ptr<State>& state) {
  auto own = std::dynamic_pointer_cast<HostState>(state);
  check(own != nullptr, "the state was made by another backend");
  return own;
}

}  // namespace

HostExecutable::HostExecutable(std::shared_ptr<const plan::Plan> plan, const std::shared_ptr<State>& state,
                               const DeviceOptions& options)
    : plan_(std::move(plan)),
      state_(own_state(state)),
      tensors_(*plan_, *state_),
      stop_(options.stop),
      stop_grace_(options.stop_grace) {
  check(plan_->groups.size() == plan_->graph().ops().size(), "the plan has groups of another backend");
  if (options.communicator != nullptr)
    collectives_ = std::make_unique<Collectives>(options.communicator, *plan_, tensors_.gradients().data());
}

void HostExecutable::write_input(graph::TensorId id, const void* data, std::size_t bytes, Lease) {
  const graph::Tensor& tensor = plan_->graph().tensor(id);
  const std::size_t expected = plan_->placement(id).bytes;
  check(bytes == expected, "input '{}' has {} bytes, not {}", tensor.name, expected, bytes);
  std::memcpy(tensors_.at(id), data, bytes);
}

void HostExecutable::execute_any(std::size_t op, bool whole_step) {
  if (plan_->graph().ops()[op].kind == graph::OpKind::all_reduce) {
    if (collectives_ != nullptr) collectives_->finish(op);  // alone, the sum over ranks is the tensor itself
    return;
  }
  execute(op);
  // Gradients of a batch that others are to be added to are not complete.
  if (collectives_ != nullptr && whole_step) collectives_->begin_after(op);
}

void HostExecutable::run(Section section, std::vector<OpTime>* times) {
  begin_ = Clock::now();
  if (collectives_ != nullptr) collectives_->take_exposed();
  run_ops(section, times);
  exposed_ = collectives_ == nullptr ? std::chrono::nanoseconds{} : collectives_->take_exposed();
  end_ = Clock::now();
}

// Not before the first op, which copies the statistics that a refused step restores, nor once the other ranks
// may have everything that this rank contributes to the step.
bool HostExecutable::should_abandon(std::size_t op) {
  if (op == 0) return false;
  bool wanted = stop_ && stop_();
  if (wanted) {
    const Clock::time_point now = Clock::now();
    if (!asked_to_stop_) asked_to_stop_ = now;
    wanted = now - *asked_to_stop_ >= stop_grace_;
  }
  wanted = wanted || refusing_;
  return collectives_ == nullptr ? wanted : collectives_->may_leave(wanted);
}

void HostExecutable::refuse() {
  refusing_ = true;
  try {
    run(Section::step, nullptr);
  } catch (const Abandoned&) {
    refusing_ = false;
    return;
  } catch (...) {
    refusing_ = false;
    throw;
  }
  throw InternalError("a step could not be left");
}

// Abandons a step as if its gradients were not finite, so that every rank refuses it.
void HostExecutable::abandon() {
  if (plan_->check != graph::kNone) {
    const std::span<float> gradients(reinterpret_cast<float*>(tensors_.gradients().data()),
                                     tensors_.gradients().size() / sizeof(float));
    if (collectives_ == nullptr)
      std::ranges::fill(gradients, std::numeric_limits<float>::quiet_NaN());
    else
      collectives_->spoil();
    for (auto i = static_cast<std::size_t>(plan_->update_begin); i < plan_->groups.size(); ++i)
      execute_any(i, /*whole_step=*/true);
  }
  throw Abandoned();
}

void HostExecutable::run_ops(Section section, std::vector<OpTime>* times) {
  const auto border = static_cast<std::size_t>(plan_->update_begin);
  const std::size_t begin = section == Section::update ? border : 0;
  const std::size_t end = section == Section::compute ? border : plan_->groups.size();
  if (times != nullptr) times->clear();
  const Clock::time_point origin = Clock::now();
  for (std::size_t i = begin; i < end; ++i) {
    if (i < border && should_abandon(i)) abandon();
    const Clock::time_point start = times == nullptr ? origin : Clock::now();
    execute_any(i, section == Section::step);
    if (times != nullptr) times->push_back({static_cast<int>(i), start - origin, Clock::now() - start});
  }
}

void HostExecutable::read(graph::TensorId id, std::span<float> values) const {
  plan::load(plan_->graph().tensor(id), plan_->placement(id).layout, tensors_.at(id), values);
}

void HostExecutable::write(graph::TensorId id, std::span<const float> values) {
  plan::store(plan_->graph().tensor(id), plan_->placement(id).layout, values, tensors_.at(id));
}

void HostExecutable::request_metrics() {
  Metrics now;
  now.begin = begin_;
  now.end = end_;
  now.exposed = exposed_;
  std::array<float, graph::kLossMetrics> sums{};
  read(plan_->model.metrics, sums);
  now.sums = graph::loss_sums(sums);
  if (plan_->check != graph::kNone) read(plan_->check, now.check);
  metrics_.push_back(now);
}

std::optional<Metrics> HostExecutable::take_metrics(bool) {
  if (metrics_.empty()) return {};
  const Metrics oldest = metrics_.front();
  metrics_.pop_front();
  return oldest;
}

ExecutableMemory HostExecutable::memory() const {
  ExecutableMemory use;
  use.arena = tensors_.arena().size();
  use.gradients = tensors_.gradients().size();
  use.state = state_->bytes();
  use.inputs = tensors_.own_bytes();
  return use;
}

}  // namespace redline::backend
