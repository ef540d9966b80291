// Which neighbouring ops of a graph one kernel can do together: each pattern is looked for at a position, and
// is true where it is found. What ops read and write is told in graph/op.h.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace redline::backend::cuda {

using graph::Op;
using graph::OpKind;
using graph::TensorId;

// None beyond the end.
inline TensorId id_of(const std::vector<TensorId>& ids, std::size_t i) {
  return i < ids.size() ? ids[i] : graph::kNone;
}
// The op at a position if it is of that kind; else null.
const Op* op_at(const graph::Graph& graph, std::size_t position, OpKind kind);
// Positions of the ops that read a tensor.
std::vector<std::size_t> readers(const graph::Graph& graph, TensorId id);

// norm_grad_stats: g, g2, y, affine, mask, saved -> dgamma, dbeta, masked
// norm_grad_apply: g, y, affine, mask, ...
//
// The input gradient of a 1x1 convolution, and the sums of the norm it arrives at. What is written in place
// of the gradient is gated already; the norm's other op gates it again, which changes nothing.
struct GradientAndSums {
  const Op *gradient = nullptr, *sums = nullptr;

  GradientAndSums(const graph::Graph& graph, std::size_t position);
  explicit operator bool() const { return gradient != nullptr; }

  bool joins() const { return sums->inputs[4] != graph::kNone; }
  TensorId other() const { return sums->inputs[sums->inputs[0] == gradient->outputs[0] ? 1 : 0]; }
  TensorId written() const {
    const TensorId masked = id_of(sums->outputs, 2);
    return masked == graph::kNone ? gradient->outputs[0] : masked;
  }
};

// A norm's gradient, which nothing gates any more, on to the sums of the norm before: norm_grad_apply,
// conv_grad_input, norm_grad_stats.
struct GradientThroughNorm {
  static constexpr std::size_t kStep = 2;  // that does it all, counted from the first
  const Op* apply = nullptr;
  GradientAndSums after;

  GradientThroughNorm(const graph::Graph& graph, std::size_t position);
  explicit operator bool() const { return apply != nullptr; }
};

// A norm's gradient and all that follows from it for the convolution in front: norm_grad_apply,
// conv_grad_input, norm_grad_stats where the convolution read an activated norm, conv_grad_weight.
struct WholeGradient {
  const Op *apply = nullptr, *input = nullptr, *sums = nullptr, *weight = nullptr;
  std::size_t activation = 0;  // position of what made the convolution's input; with sums only

  WholeGradient(const graph::Graph& graph, std::size_t position);
  explicit operator bool() const { return apply != nullptr; }

  std::size_t step() const { return sums == nullptr ? 1 : 2; }  // that does it all, counted from the first

 private:
  bool find_activation(const graph::Graph& graph);
};

// A training norm whose sums a convolution gathered, and what applies it first.
struct NormAndUse {
  const Op *norm = nullptr, *act = nullptr;

  NormAndUse(const graph::Graph& graph, std::size_t position);
  explicit operator bool() const { return norm != nullptr; }

  TensorId sums() const { return norm->inputs[5]; }
};

// The end of a block and the convolution that the next one begins with: affine_act, conv.
struct JoinAndConv {
  const Op *act = nullptr, *conv = nullptr;

  JoinAndConv(const graph::Graph& graph, std::size_t position);
  explicit operator bool() const { return act != nullptr; }
};

// A norm and what applies it, where what reads that is a convolution that expands it, so that it need not be
// written: norm_stats, affine_act, conv.
struct ActivatedExpansion {
  const Op* conv = nullptr;
  // Where gradients are wanted, the first of the ops whose merged kernel makes the activation again.
  std::optional<std::size_t> gradient;

  ActivatedExpansion(const graph::Graph& graph, std::size_t position, const NormAndUse& pair);
  explicit operator bool() const { return conv != nullptr; }
};

// How many ops after the one at a position it may be done with them: its inputs are read until then.
int ops_merged_after(const graph::Graph& graph, std::size_t position);
// Whether a tensor is made again by all that read it, merged with others: where that is so they always are.
bool is_remade(const graph::Graph& graph, TensorId id);

}  // namespace redline::backend::cuda
