// An op as a reference kernel sees it: its inputs and outputs as fp32 values in plain order, whatever their
// stored type. Lives for one execution of one op.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace redline::backend::reference {

class Arguments {
 public:
  // `memory` holds where each input, then each output, is stored; null for an absent or unplaced one.
  Arguments(const graph::Graph& graph, const graph::Op& op, std::span<std::byte* const> memory);

  int inputs() const { return static_cast<int>(inputs_.size()); }
  int outputs() const { return static_cast<int>(outputs_.size()); }
  bool has_input(int i) const { return input_slot(i).memory != nullptr; }
  bool has_output(int i) const { return output_slot(i).memory != nullptr; }
  const graph::Shape& input_shape(int i) const { return input_slot(i).tensor->shape; }
  graph::DType input_dtype(int i) const { return input_slot(i).tensor->dtype; }
  const graph::Shape& output_shape(int i) const { return output_slot(i).tensor->shape; }

  template <typename Attr>
  const Attr& attr() const {
    return op_.attr<Attr>();
  }

  // Values of an input; empty when it is absent. Valid while this object lives.
  std::span<const float> in(int i);
  // Where to write an output; empty if it is not used. commit() stores it to the tensor.
  std::span<float> out(int i);
  // An fp32 input that the op updates in place, such as running statistics.
  std::span<float> in_place(int i);

  std::span<const std::uint8_t> in_bytes(int i) const;
  std::span<std::uint8_t> out_bytes(int i);
  std::span<const std::int32_t> in_ints(int i) const;

  // The value that an element of output i will have once stored.
  float as_stored(int i, float value) const;
  // Rounds what was written to outputs into their dtype.
  void commit();

 private:
  struct Slot {
    const graph::Tensor* tensor = nullptr;
    std::byte* memory = nullptr;
    std::vector<float> values;  // for a tensor that is not stored as fp32
  };

  const Slot& input_slot(int i) const;
  const Slot& output_slot(int i) const;
  Slot& input_slot(int i);
  Slot& output_slot(int i);
  static std::span<float> values_of(Slot& slot, bool load);

  const graph::Op& op_;
  std::vector<Slot> inputs_, outputs_;
};

}  // namespace redline::backend::reference
