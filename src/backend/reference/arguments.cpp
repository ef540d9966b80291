#include "backend/reference/arguments.h"

#include "base/error.h"
#include "plan/layout.h"

namespace redline::backend::reference {

using graph::DType;

Arguments::Arguments(const graph::Graph& graph, const graph::Op& op, std::span<std::byte* const> memory)
    : op_(op) {
  const auto slot = [&](graph::TensorId id, std::byte* where) {
    return Slot{id == graph::kNone ? nullptr : &graph.tensor(id), where, {}};
  };
  for (std::size_t i = 0; i < op.inputs.size(); ++i) inputs_.push_back(slot(op.inputs[i], memory[i]));
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    outputs_.push_back(slot(op.outputs[i], memory[op.inputs.size() + i]));
  }
}

namespace {

// An op may omit trailing optional tensors.
template <typename Slots>
auto& slot_of(Slots& slots, int i, decltype(&slots.front()) absent) {
  return static_cast<std::size_t>(i) < slots.size() ? slots[static_cast<std::size_t>(i)] : *absent;
}

}  // namespace

const Arguments::Slot& Arguments::input_slot(int i) const {
  static const Slot absent;
  return slot_of(inputs_, i, &absent);
}

const Arguments::Slot& Arguments::output_slot(int i) const {
  static const Slot absent;
  return slot_of(outputs_, i, &absent);
}

Arguments::Slot& Arguments::input_slot(int i) { return inputs_.at(static_cast<std::size_t>(i)); }
Arguments::Slot& Arguments::output_slot(int i) { return outputs_.at(static_cast<std::size_t>(i)); }

std::span<float> Arguments::values_of(Slot& slot, bool load) {
  const auto count = static_cast<std::size_t>(slot.tensor->shape.elements());
  if (slot.tensor->dtype == DType::f32) return {reinterpret_cast<float*>(slot.memory), count};
  if (slot.values.empty()) {
    slot.values.resize(count);
    if (load) plan::load(*slot.tensor, plan::Layout::plain, slot.memory, slot.values);
  }
  return slot.values;
}

std::span<const float> Arguments::in(int i) {
  if (!has_input(i)) return {};
  return values_of(input_slot(i), true);
}

std::span<float> Arguments::out(int i) {
  if (!has_output(i)) return {};
  return values_of(output_slot(i), false);
}

std::span<float> Arguments::in_place(int i) {
  Slot& slot = input_slot(i);
  check(slot.memory && slot.tensor->dtype == DType::f32,
        "{} {}: input {} must be fp32 to be updated in place", name_of(op_.kind), op_.name, i);
  return values_of(slot, true);
}

std::span<const std::uint8_t> Arguments::in_bytes(int i) const {
  if (!has_input(i)) return {};
  const Slot& slot = input_slot(i);
  return {reinterpret_cast<const std::uint8_t*>(slot.memory),
          static_cast<std::size_t>(slot.tensor->shape.elements())};
}

std::span<std::uint8_t> Arguments::out_bytes(int i) {
  if (!has_output(i)) return {};
  Slot& slot = output_slot(i);
  return {reinterpret_cast<std::uint8_t*>(slot.memory),
          static_cast<std::size_t>(slot.tensor->shape.elements())};
}

std::span<const std::int32_t> Arguments::in_ints(int i) const {
  if (!has_input(i)) return {};
  const Slot& slot = input_slot(i);
  check(slot.tensor->dtype == DType::i32, "{} {}: input {} must be i32", name_of(op_.kind), op_.name, i);
  return {reinterpret_cast<const std::int32_t*>(slot.memory),
          static_cast<std::size_t>(slot.tensor->shape.elements())};
}

float Arguments::as_stored(int i, float value) const {
  const graph::Tensor& tensor = *output_slot(i).tensor;
  if (tensor.dtype == DType::f32) return value;
  const graph::Tensor one{"", {1}, tensor.dtype, tensor.kind};
  std::byte memory[sizeof(float)];
  plan::store(one, plan::Layout::plain, {&value, 1}, memory);
  plan::load(one, plan::Layout::plain, memory, {&value, 1});
  return value;
}

void Arguments::commit() {
  for (Slot& slot : outputs_) {
    if (!slot.values.empty()) plan::store(*slot.tensor, plan::Layout::plain, slot.values, slot.memory);
  }
}

}  // namespace redline::backend::reference
