// One op of a plan as a backend compiles it: its tensors, their layouts and addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "plan/plan.h"

namespace redline::backend {

class Collectives;

// Optional inputs and outputs at the end of an op's lists may be missing there: they count as absent. Lives
// while an op is compiled.
class OpView {
 public:
  OpView(const plan::Plan& plan, const graph::Op& op, std::function<std::byte*(graph::TensorId)> address,
         Collectives* collectives = nullptr)
      : plan_(plan), op_(op), address_(std::move(address)), collectives_(collectives) {}

  graph::OpKind kind() const { return op_.kind; }
  const std::string& name() const { return op_.name; }
  const graph::Op& op() const { return op_; }
  template <typename Attr>
  const Attr& attr() const {
    return op_.attr<Attr>();
  }

  int inputs() const { return static_cast<int>(op_.inputs.size()); }
  int outputs() const { return static_cast<int>(op_.outputs.size()); }
  const graph::Tensor& in_tensor(int i) const { return plan_.graph().tensor(input(i)); }
  const graph::Tensor& out_tensor(int i) const { return plan_.graph().tensor(output(i)); }
  plan::Layout in_layout(int i) const { return plan_.placement(input(i)).layout; }
  plan::Layout out_layout(int i) const { return plan_.placement(output(i)).layout; }
  // For an op that uses other ranks' numbers; null if there are no other ranks.
  Collectives* collectives() const { return collectives_; }
  std::int64_t in_stored(int i) const { return plan::stored_elements(in_tensor(i).shape, in_layout(i)); }
  std::int64_t out_stored(int i) const { return plan::stored_elements(out_tensor(i).shape, out_layout(i)); }

  // Null when the tensor is absent.
  template <typename T = std::byte>
  T* in(int i) const {
    return reinterpret_cast<T*>(address_(input(i)));
  }
  template <typename T = std::byte>
  T* out(int i) const {
    return reinterpret_cast<T*>(address_(output(i)));
  }

 private:
  static graph::TensorId id_of(const std::vector<graph::TensorId>& ids, int i) {
    return static_cast<std::size_t>(i) < ids.size() ? ids[static_cast<std::size_t>(i)] : graph::kNone;
  }
  graph::TensorId input(int i) const { return id_of(op_.inputs, i); }
  graph::TensorId output(int i) const { return id_of(op_.outputs, i); }

  const plan::Plan& plan_;
  const graph::Op& op_;
  std::function<std::byte*(graph::TensorId)> address_;
  Collectives* collectives_;
};

}  // namespace redline::backend
