#include "backend/host/executable.h"

#include <cstring>
#include <utility>

#include "backend/stored_copy.h"
#include "base/error.h"
#include "plan/layout.h"

namespace redline::backend {

using plan::Region;
using Clock = std::chrono::steady_clock;

void HostState::read(const std::string& name, std::span<float> values) const {
  const Entry& from = entry(name);
  plan::load(from.tensor, from.layout, from.memory.data(), values);
}

void HostState::write(const std::string& name, std::span<const float> values) {
  const Entry& to = entry(name);
  plan::store(to.tensor, to.layout, values, to.memory.data());
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

std::unique_ptr<StateCopy> HostState::make_copy() { return std::make_unique<HostStateCopy>(entries_); }

std::byte* HostState::memory(const graph::Tensor& tensor, plan::Layout layout) {
  const auto [it, added] = entries_.try_emplace(tensor.name);
  Entry& found = it->second;
  if (added) {
    found = {tensor, layout, HostMemory(plan::stored_bytes(tensor, layout))};
    if (tensor.fill != 0.0F) {
      const std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()), tensor.fill);
      plan::store(tensor, layout, values, found.memory.data());
    }
    order_.push_back(tensor.name);
  }
  check(found.tensor.shape == tensor.shape && found.tensor.dtype == tensor.dtype && found.layout == layout,
        "'{}' is {} {} {} in the state and {} {} {} in the plan", tensor.name, found.tensor.shape.text(),
        name_of(found.tensor.dtype), name_of(found.layout), tensor.shape.text(), name_of(tensor.dtype),
        name_of(layout));
  return found.memory.data();
}

std::size_t HostState::bytes() const {
  std::size_t sum = 0;
  for (const auto& [name, held] : entries_) sum += held.memory.size();
  return sum;
}

const HostState::Entry& HostState::entry(const std::string& name) const {
  const auto it = entries_.find(name);
  check(it != entries_.end(), "the state has no tensor '{}'", name);
  return it->second;
}

HostExecutable::HostExecutable(std::shared_ptr<const plan::Plan> plan, const std::shared_ptr<State>& state,
                               std::shared_ptr<comm::Communicator> communicator)
    : plan_(std::move(plan)), state_(std::dynamic_pointer_cast<HostState>(state)) {
  check(state_ != nullptr, "the state was made by another backend");
  arena_ = state_->arena.at_least(plan_->arena_bytes);
  gradients_ = state_->gradients.at_least(plan_->gradient_bytes);
  const auto& tensors = plan_->graph().tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    addresses_.push_back(place(tensors[i], plan_->placements[i]));
  }
  if (communicator != nullptr)
    collectives_ = std::make_unique<Collectives>(std::move(communicator), *plan_, gradients_->data());
}

std::byte* HostExecutable::place(const graph::Tensor& tensor, const plan::Placement& placement) {
  switch (placement.region) {
    case Region::none:
      return nullptr;
    case Region::arena:
      check(placement.offset + placement.bytes <= arena_->size(), "'{}' is outside the arena", tensor.name);
      return arena_->data() + placement.offset;
    case Region::bucket:
      check(placement.offset + placement.bytes <= gradients_->size(), "'{}' is outside its bucket",
            tensor.name);
      return gradients_->data() + placement.offset;
    case Region::state:
      return state_->memory(tensor, placement.layout);
    case Region::host_io:
      return io_.emplace_back(placement.bytes).data();
  }
  throw InternalError("'{}' is placed nowhere", tensor.name);
}

std::byte* HostExecutable::placed(graph::TensorId id) const {
  std::byte* memory = address(id);
  check(memory != nullptr, "tensor '{}' is not kept by this plan", plan_->graph().tensor(id).name);
  return memory;
}

void HostExecutable::write_input(graph::TensorId id, const void* data, std::size_t bytes) {
  const graph::Tensor& tensor = plan_->graph().tensor(id);
  const std::size_t expected = plan_->placement(id).bytes;
  check(bytes == expected, "input '{}' has {} bytes, not {}", tensor.name, expected, bytes);
  std::memcpy(placed(id), data, bytes);
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

CommunicationTime HostExecutable::communication() const {
  return collectives_ == nullptr ? CommunicationTime{} : collectives_->time();
}

void HostExecutable::run(Section section, std::vector<OpTime>* times) {
  const auto border = static_cast<std::size_t>(plan_->update_begin);
  const std::size_t begin = section == Section::update ? border : 0;
  const std::size_t end = section == Section::compute ? border : plan_->graph().ops().size();
  if (times == nullptr) {
    for (std::size_t i = begin; i < end; ++i) execute_any(i, section == Section::step);
    return;
  }
  times->clear();
  const Clock::time_point origin = Clock::now();
  for (std::size_t i = begin; i < end; ++i) {
    const Clock::time_point start = Clock::now();
    execute_any(i, section == Section::step);
    times->push_back({static_cast<int>(i), start - origin, Clock::now() - start});
  }
}

void HostExecutable::read(graph::TensorId id, std::span<float> values) const {
  plan::load(plan_->graph().tensor(id), plan_->placement(id).layout, placed(id), values);
}

void HostExecutable::write(graph::TensorId id, std::span<const float> values) {
  plan::store(plan_->graph().tensor(id), plan_->placement(id).layout, values, placed(id));
}

void HostExecutable::request_metrics() {
  Metrics now;
  read(plan_->model.metrics, now.loss);
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
  use.arena = arena_->size();
  use.gradients = gradients_->size();
  use.state = state_->bytes();
  for (const HostMemory& buffer : io_) use.inputs += buffer.size();
  return use;
}

}  // namespace redline::backend
