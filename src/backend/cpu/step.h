// How an op becomes executable: a maker examines the op once, at compile time, and returns a Step that only
// computes. Makers are grouped by family, one file each; the table is in cpu.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "backend/host/memory.h"
#include "backend/op_view.h"
#include "graph/operands.h"

namespace redline::backend::cpu {

namespace operands = graph::operands;

// Memory that steps use in turn. Makers say how much they need; steps ask where it is.
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

using Step = std::function<void()>;
using StepMaker = Step (*)(const OpView& op, Scratch& scratch);

// conv.cpp
Step make_conv(const OpView& op, Scratch& scratch);
Step make_conv_grad_input(const OpView& op, Scratch& scratch);
Step make_conv_grad_weight(const OpView& op, Scratch& scratch);
// linear.cpp
Step make_linear(const OpView& op, Scratch& scratch);
Step make_linear_grad_input(const OpView& op, Scratch& scratch);
Step make_linear_grad_weight(const OpView& op, Scratch& scratch);
// norm.cpp
Step make_norm_stats(const OpView& op, Scratch& scratch);
Step make_affine_act(const OpView& op, Scratch& scratch);
Step make_norm_grad_stats(const OpView& op, Scratch& scratch);
Step make_norm_grad_apply(const OpView& op, Scratch& scratch);
Step make_batch_norm(const OpView& op, Scratch& scratch);
Step make_batch_norm_grad(const OpView& op, Scratch& scratch);
// pool.cpp
Step make_max_pool(const OpView& op, Scratch& scratch);  // and affine_pool
Step make_max_pool_grad(const OpView& op, Scratch& scratch);
Step make_avg_pool(const OpView& op, Scratch& scratch);
Step make_avg_pool_grad(const OpView& op, Scratch& scratch);
Step make_local_avg_pool(const OpView& op, Scratch& scratch);
Step make_local_avg_pool_grad(const OpView& op, Scratch& scratch);
// elementwise.cpp
Step make_normalize_image(const OpView& op, Scratch& scratch);
Step make_relu(const OpView& op, Scratch& scratch);
Step make_relu_grad(const OpView& op, Scratch& scratch);
Step make_add(const OpView& op, Scratch& scratch);
// loss.cpp
Step make_softmax_cross_entropy(const OpView& op, Scratch& scratch);
// update.cpp
Step make_snapshot(const OpView& op, Scratch& scratch);
Step make_gradient_check(const OpView& op, Scratch& scratch);
Step make_restore(const OpView& op, Scratch& scratch);
Step make_sgd(const OpView& op, Scratch& scratch);
Step make_lars(const OpView& op, Scratch& scratch);
Step make_adamw(const OpView& op, Scratch& scratch);
Step make_lamb(const OpView& op, Scratch& scratch);
Step make_ema(const OpView& op, Scratch& scratch);
Step make_accumulate(const OpView& op, Scratch& scratch);
Step make_all_reduce(const OpView& op, Scratch& scratch);

}  // namespace redline::backend::cpu
