// How an op becomes something to run: a maker looks at the op once, at compile time, and gives a Step that
// only computes. Makers are grouped by family, one file each; the table is in cpu.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "backend/host/memory.h"
#include "graph/graph.h"
#include "plan/plan.h"

namespace redline::backend::cpu {

// Memory that steps share one after the other. Makers say how much they need; steps ask where it is.
class Scratch {
 public:
  void need(std::size_t bytes) { bytes_ = std::max(bytes_, bytes); }
  void allocate() { memory_ = HostMemory(bytes_); }
  std::byte* data() const { return memory_.data(); }
  std::size_t size() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
  HostMemory memory_;
};

// One op with its tensors' places.
class OpView {
 public:
  OpView(const plan::Plan& plan, const graph::Op& op, std::function<std::byte*(graph::TensorId)> address,
         Scratch& scratch)
      : plan_(plan), op_(op), address_(std::move(address)), scratch_(scratch) {}

  graph::OpKind kind() const { return op_.kind; }
  template <typename Attr>
  const Attr& attr() const {
    return op_.attr<Attr>();
  }

  const graph::Tensor& in_tensor(int i) const { return plan_.graph().tensor(input(i)); }
  const graph::Tensor& out_tensor(int i) const { return plan_.graph().tensor(output(i)); }
  plan::Layout in_layout(int i) const { return plan_.placement(input(i)).layout; }
  plan::Layout out_layout(int i) const { return plan_.placement(output(i)).layout; }
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

  int inputs() const { return static_cast<int>(op_.inputs.size()); }
  Scratch& scratch() const { return scratch_; }

 private:
  graph::TensorId input(int i) const { return op_.inputs.at(static_cast<std::size_t>(i)); }
  graph::TensorId output(int i) const { return op_.outputs.at(static_cast<std::size_t>(i)); }

  const plan::Plan& plan_;
  const graph::Op& op_;
  std::function<std::byte*(graph::TensorId)> address_;
  Scratch& scratch_;
};

using Step = std::function<void()>;
using StepMaker = Step (*)(const OpView& op);

// conv.cpp
Step make_conv(const OpView& op);
Step make_conv_grad_input(const OpView& op);
Step make_conv_grad_weight(const OpView& op);
// linear.cpp
Step make_linear(const OpView& op);
Step make_linear_grad_input(const OpView& op);
Step make_linear_grad_weight(const OpView& op);
// norm.cpp
Step make_norm_stats(const OpView& op);
Step make_affine_act(const OpView& op);
Step make_norm_grad_stats(const OpView& op);
Step make_norm_grad_apply(const OpView& op);
Step make_batch_norm(const OpView& op);
Step make_batch_norm_grad(const OpView& op);
// pool.cpp
Step make_max_pool(const OpView& op);  // and affine_pool
Step make_max_pool_grad(const OpView& op);
Step make_avg_pool(const OpView& op);
Step make_avg_pool_grad(const OpView& op);
// elementwise.cpp
Step make_normalize_image(const OpView& op);
Step make_relu(const OpView& op);
Step make_relu_grad(const OpView& op);
Step make_add(const OpView& op);
// loss.cpp
Step make_softmax_cross_entropy(const OpView& op);
// update.cpp
Step make_sgd(const OpView& op);
Step make_lars(const OpView& op);
Step make_ema(const OpView& op);
Step make_accumulate(const OpView& op);
Step make_all_reduce(const OpView& op);

}  // namespace redline::backend::cpu
