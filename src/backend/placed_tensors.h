// Where the tensors of a compiled plan are: in the memory that executables share, in the state, or in
// separate buffers.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "backend/work_memory.h"
#include "base/error.h"
#include "plan/plan.h"

namespace redline::backend {

// `Memory` is made from a number of bytes and has data() and size(). `plan` lives as long as this.
template <typename Memory>
class PlacedTensors {
 public:
  // `State` has memory(tensor, layout), and WorkMemory<Memory> arena and gradients.
  template <typename State>
  PlacedTensors(const plan::Plan& plan, State& state)
      : plan_(plan),
        arena_(state.arena.at_least(plan.arena_bytes)),
        gradients_(state.gradients.at_least(plan.gradient_bytes)) {
    const auto& tensors = plan.graph().tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i)
      addresses_.push_back(place(tensors[i], plan.placements[i], state));
  }

  // Null for kNone and for tensors that the plan does not keep.
  std::byte* find(graph::TensorId id) const {
    return id == graph::kNone ? nullptr : addresses_[static_cast<std::size_t>(id)];
  }
  // Like find(), but throws InternalError instead of returning null.
  std::byte* at(graph::TensorId id) const {
    std::byte* memory = find(id);
    check(memory != nullptr, "tensor '{}' is not kept by this plan", plan_.graph().tensor(id).name);
    return memory;
  }

  const Memory& arena() const { return *arena_; }
  const Memory& gradients() const { return *gradients_; }
  std::size_t own_bytes() const {  // of inputs and metrics
    std::size_t sum = 0;
    for (const Memory& buffer : own_) sum += buffer.size();
    return sum;
  }

 private:
  template <typename State>
  std::byte* place(const graph::Tensor& tensor, const plan::Placement& placement, State& state) {
    const auto slice = [&](const Memory& memory) {
      check(placement.offset + placement.bytes <= memory.size(), "'{}' is outside its memory", tensor.name);
      return memory.data() + placement.offset;
    };
    switch (placement.region) {
      case plan::Region::none:
        return nullptr;
      case plan::Region::arena:
        return slice(*arena_);
      case plan::Region::bucket:
        return slice(*gradients_);
      case plan::Region::state:
        return state.memory(tensor, placement.layout);
      case plan::Region::host_io:
        return own_.emplace_back(placement.bytes).data();
    }
    throw InternalError("'{}' is placed nowhere", tensor.name);
  }

  const plan::Plan& plan_;
  std::shared_ptr<Memory> arena_, gradients_;
  std::vector<Memory> own_;
  std::vector<std::byte*> addresses_;  // by TensorId
};

}  // namespace redline::backend
