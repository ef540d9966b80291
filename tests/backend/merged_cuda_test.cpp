// Neighbouring ops that the cuda backend does in one kernel, against the reference: the very sequences that
// it merges, with numbers of rows (pixels of all images) that fill the last tile only partly.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "agreement.h"
#include "backend/backend.h"
#include "backend/reference/reference.h"
#include "base/error.h"
#include "bench/op_cases.h"
#include "case_graph.h"
#include "plan/layout.h"

namespace redline {
namespace {

using cases::CaseGraph;
using graph::DType;
using graph::kNone;
using graph::OpKind;
using graph::Shape;
using graph::TensorId;
using graph::TensorKind;

struct Images {
  const char* name;
  std::int64_t count, h, w;
  Shape with(std::int64_t channels) const { return {count, channels, h, w}; }
};

struct Sequence {
  std::vector<std::vector<int>> together;  // positions of the ops that are merged
  std::set<TensorId> between;  // tensors that merged ops need not write, or may write gated already
  std::set<TensorId> rounded_twice = {};
  TensorId over = kNone, written = kNone;  // in place: on the device the latter lies where the former does
};

// What a norm's two backward ops read and write.
struct NormGradient {
  TensorId y, affine, saved, gamma, dgamma, dbeta;

  NormGradient(CaseGraph& g, const Shape& shape)
      : y(g.activation(shape)),
        affine(g.pair(shape.c())),
        saved(g.pair(shape.c())),
        gamma(g.channels(shape.c())),
        dgamma(g.channels(shape.c(), TensorKind::gradient)),
        dbeta(g.channels(shape.c(), TensorKind::gradient)) {}

  void add_stats(CaseGraph& g, TensorId gradient) const {
    g.add_op(OpKind::norm_grad_stats, {gradient, kNone, y, affine, kNone, saved}, {dgamma, dbeta, kNone},
             graph::NormAttr{});
  }
  void add_apply(CaseGraph& g, TensorId gradient, TensorId gate, TensorId dy) const {
    g.add_op(OpKind::norm_grad_apply, {gradient, y, gate, kNone, saved, gamma, dgamma, dbeta}, {dy},
             graph::NormAttr{});
  }
};

TensorId add_conv_grad_input(CaseGraph& g, TensorId dy, const Shape& from, const Shape& to) {
  const TensorId weights = g.tensor({from.c(), to.c(), 1, 1}, DType::f32, TensorKind::parameter);
  const TensorId dx = g.activation(to);
  g.add_op(OpKind::conv_grad_input, {dy, weights}, {dx}, graph::ConvAttr{});
  return dx;
}

void add_conv_grad_weight(CaseGraph& g, TensorId x, TensorId dy, const Shape& in, const Shape& out) {
  g.add_op(OpKind::conv_grad_weight, {x, dy},
           {g.tensor({out.c(), in.c(), 1, 1}, g.dtype(), TensorKind::gradient)}, graph::ConvAttr{});
}

// A convolution's input gradient, and the sums of the norm before it. The norm's other op follows, as it does
// in training: the gradient between may be gated once or twice, what comes out of that op is the same.
Sequence gated(CaseGraph& g, const Images& images, std::int64_t from_channels, std::int64_t to_channels) {
  const Shape from = images.with(from_channels), to = images.with(to_channels);
  const TensorId dx = add_conv_grad_input(g, g.activation(from), from, to);
  const NormGradient norm(g, to);
  norm.add_stats(g, dx);
  const TensorId last = g.activation(to);
  norm.add_apply(g, dx, norm.affine, last);
  return {{{0, 1}}, {dx}, {last}};
}
Sequence gated_64(CaseGraph& g, const Images& images) { return gated(g, images, 256, 64); }
Sequence gated_384(CaseGraph& g, const Images& images) { return gated(g, images, 64, 384); }

// The same at the end of a block, where a second gradient joins and the gate is a mask.
struct Joined {
  TensorId dx, other, masked;
};
Joined add_joined(CaseGraph& g, const Images& images, std::int64_t from_channels, std::int64_t to_channels,
                  bool in_place) {
  const Shape from = images.with(from_channels), to = images.with(to_channels);
  const TensorId dx = add_conv_grad_input(g, g.activation(from), from, to);
  const TensorId other = g.activation(to), masked = g.activation(to);
  const TensorId first = in_place ? other : dx, second = in_place ? dx : other;
  g.add_op(OpKind::norm_grad_stats, {first, second, g.activation(to), kNone, g.mask(to), g.pair(to.c())},
           {g.channels(to.c(), TensorKind::gradient), g.channels(to.c(), TensorKind::gradient), masked},
           graph::NormAttr{});
  return {dx, other, masked};
}
Sequence joined_apart(CaseGraph& g, const Images& images) {
  return {{{0, 1}}, {add_joined(g, images, 64, 256, false).dx}};
}
Sequence joined_in_place(CaseGraph& g, const Images& images) {
  const auto [dx, other, masked] = add_joined(g, images, 64, 256, true);
  return {{{0, 1}}, {dx, other}, {}, other, masked};
}
Sequence joined_64(CaseGraph& g, const Images& images) {
  return {{{0, 1}}, {add_joined(g, images, 192, 64, false).dx}};
}

// The same where the block's shortcut has a norm too.
Sequence joined_two_norms(CaseGraph& g, const Images& images, std::int64_t from_channels,
                          std::int64_t to_channels) {
  const Joined joined = add_joined(g, images, from_channels, to_channels, false);
  const Shape to = images.with(to_channels);
  g.add_op(OpKind::norm_grad_stats, {joined.masked, kNone, g.activation(to), kNone, kNone, g.pair(to.c())},
           {g.channels(to.c(), TensorKind::gradient), g.channels(to.c(), TensorKind::gradient), kNone},
           graph::NormAttr{});
  return {{{0, 1, 2}}, {joined.dx}};
}
Sequence joined_two_norms_256(CaseGraph& g, const Images& images) {
  return joined_two_norms(g, images, 64, 256);
}
Sequence joined_two_norms_64(CaseGraph& g, const Images& images) {
  return joined_two_norms(g, images, 192, 64);
}

// The same where the second gradient is that of a 1x1 convolution of stride 2.
Sequence joined_sparse(CaseGraph& g, const Images& images, std::int64_t from_channels,
                       std::int64_t to_channels, bool branch_first) {
  const Shape from = images.with(from_channels), to = images.with(to_channels);
  const Shape half{to.n(), 128, (to.h() + 1) / 2, (to.w() + 1) / 2};
  const TensorId other = g.activation(to);
  g.add_op(OpKind::conv_grad_input,
           {g.activation(half), g.tensor({half.c(), to.c(), 1, 1}, DType::f32, TensorKind::parameter)},
           {other}, graph::ConvAttr{.stride = 2, .pad = 0});
  const TensorId dx = add_conv_grad_input(g, g.activation(from), from, to), masked = g.activation(to);
  g.add_op(OpKind::norm_grad_stats,
           {branch_first ? other : dx, branch_first ? dx : other, g.activation(to), kNone, g.mask(to),
            g.pair(to.c())},
           {g.channels(to.c(), TensorKind::gradient), g.channels(to.c(), TensorKind::gradient), masked},
           graph::NormAttr{});
  return {{{0, 1, 2}}, {dx, other}};
}
Sequence joined_sparse_256(CaseGraph& g, const Images& images) {
  return joined_sparse(g, images, 64, 256, true);
}
Sequence joined_sparse_64(CaseGraph& g, const Images& images) {
  return joined_sparse(g, images, 192, 64, false);
}

// A norm's scale and bias from sums that a convolution gathered.
void add_norm_stats(CaseGraph& g, TensorId y, std::int64_t c, TensorId affine, TensorId saved) {
  const TensorId gamma = g.channels(c), beta = g.channels(c);
  const TensorId mean = g.channels(c, TensorKind::statistic), variance = g.channels(c, TensorKind::statistic);
  g.add_op(OpKind::norm_stats, {y, gamma, beta, mean, variance, g.pair(c)}, {affine, saved},
           graph::NormAttr{});
}

// The same, and their first use.
Sequence affine(CaseGraph& g, const Images& images, bool shortcut) {
  const Shape shape = images.with(64);
  const TensorId y = g.activation(shape), scales = g.pair(shape.c());
  add_norm_stats(g, y, shape.c(), scales, g.pair(shape.c()));
  g.add_op(OpKind::affine_act, {y, scales, shortcut ? g.activation(shape) : kNone, kNone},
           {g.activation(shape), shortcut ? g.mask(shape) : kNone}, graph::ActAttr{});
  return {{{0, 1}}, {}};
}
Sequence affine_alone(CaseGraph& g, const Images& images) { return affine(g, images, false); }
Sequence affine_and_shortcut(CaseGraph& g, const Images& images) { return affine(g, images, true); }

// The stem's pool and norm. The images are what the pool gives.
Sequence stem(CaseGraph& g, const Images& images) {
  const Shape out = images.with(64), in{images.count, 64, 2 * images.h, 2 * images.w};
  const TensorId pooled = g.activation(out), index = g.activation(out, DType::u8), dx = g.activation(in);
  g.add_op(OpKind::max_pool_grad, {pooled, index}, {dx}, graph::PoolAttr{});
  const NormGradient norm(g, in);
  norm.add_apply(g, dx, norm.affine, g.activation(in));
  return {{{0, 1}}, {dx}};
}

// A 1x1 convolution that gathers sums for the next norm.
Sequence summed(CaseGraph& g, TensorId x, const Images& images, std::int64_t from, std::int64_t to) {
  const TensorId weights = g.tensor({to, from, 1, 1}, DType::f32, TensorKind::parameter);
  g.add_op(OpKind::conv, {x, weights}, {g.activation(images.with(to)), g.pair(to)}, graph::ConvAttr{});
  return {{{0}}, {}};
}
Sequence summed_64(CaseGraph& g, const Images& images) {
  return summed(g, g.activation(images.with(192)), images, 192, 64);
}
Sequence summed_256(CaseGraph& g, const Images& images) {
  return summed(g, g.activation(images.with(64)), images, 64, 256);
}
Sequence summed_384(CaseGraph& g, const Images& images) {
  return summed(g, g.activation(images.with(64)), images, 64, 384);
}

// The same behind a norm and ReLU that nothing else reads.
TensorId add_activated(CaseGraph& g, const NormGradient& norm, const Images& images, std::int64_t from,
                       std::int64_t to) {
  const Shape in = images.with(from);
  const TensorId x = g.activation(in);
  add_norm_stats(g, norm.y, in.c(), norm.affine, norm.saved);
  g.add_op(OpKind::affine_act, {norm.y, norm.affine, kNone, kNone}, {x, kNone}, graph::ActAttr{});
  summed(g, x, images, from, to);
  return x;
}
TensorId add_expanded_activation(CaseGraph& g, const NormGradient& norm, const Images& images) {
  return add_activated(g, norm, images, 64, 256);
}
Sequence expanded_activation(CaseGraph& g, const Images& images) {
  const TensorId x = add_expanded_activation(g, NormGradient(g, images.with(64)), images);
  return {{{0, 1, 2}}, {x}};
}

// The same of other sizes: the activation is stored.
Sequence activated(CaseGraph& g, const Images& images, std::int64_t from, std::int64_t to) {
  add_activated(g, NormGradient(g, images.with(from)), images, from, to);
  return {{{0, 1, 2}}, {}};
}
Sequence activated_128(CaseGraph& g, const Images& images) { return activated(g, images, 128, 512); }
Sequence activated_to_128(CaseGraph& g, const Images& images) { return activated(g, images, 128, 128); }

// The end of a block, and the convolution that the next one begins with. The shortcut may have a norm too:
// all norms are worked out before then.
Sequence join(CaseGraph& g, const Images& images, std::int64_t wide, std::int64_t narrow, bool two_norms) {
  const Shape in = images.with(wide), out = images.with(narrow);
  const TensorId y = g.activation(in), z = g.activation(in), scales = g.pair(wide);
  if (!two_norms) add_norm_stats(g, y, wide, scales, g.pair(wide));
  g.add_op(OpKind::affine_act, {y, scales, g.activation(in), two_norms ? g.pair(wide) : kNone},
           {z, g.mask(in)}, graph::ActAttr{});
  const TensorId weights = g.tensor({narrow, wide, 1, 1}, DType::f32, TensorKind::parameter);
  g.add_op(OpKind::conv, {z, weights}, {g.activation(out), g.pair(narrow)}, graph::ConvAttr{});
  return {{two_norms ? std::vector{0, 1} : std::vector{0, 1, 2}}, {}};
}
Sequence join_64(CaseGraph& g, const Images& images) { return join(g, images, 256, 64, false); }
Sequence join_128(CaseGraph& g, const Images& images) { return join(g, images, 128, 128, false); }
Sequence join_256(CaseGraph& g, const Images& images) { return join(g, images, 384, 256, false); }
Sequence join_widest(CaseGraph& g, const Images& images) { return join(g, images, 1024, 256, false); }
Sequence join_two_norms(CaseGraph& g, const Images& images) { return join(g, images, 256, 128, true); }

// A norm and ReLU, and the 3x3 convolution that reads them.
TensorId add_activated_conv3x3(CaseGraph& g, const Shape& shape) {
  const TensorId y = g.activation(shape), z = g.activation(shape), scales = g.pair(shape.c());
  add_norm_stats(g, y, shape.c(), scales, g.pair(shape.c()));
  g.add_op(OpKind::affine_act, {y, scales, kNone, kNone}, {z, kNone}, graph::ActAttr{});
  const TensorId weights = g.tensor({shape.c(), shape.c(), 3, 3}, DType::f32, TensorKind::parameter);
  g.add_op(OpKind::conv, {z, weights}, {g.activation(shape), g.pair(shape.c())}, graph::ConvAttr{1, 1});
  return z;
}
// The activation is stored where something else reads it.
Sequence activated_conv3x3(CaseGraph& g, const Images& images, std::int64_t channels) {
  const Shape shape = images.with(channels);
  const TensorId z = add_activated_conv3x3(g, shape);
  g.add_op(OpKind::add, {z, g.activation(shape)}, {g.activation(shape)});
  return {{{0, 1, 2}}, {}};
}
Sequence activated_conv3x3_64(CaseGraph& g, const Images& images) { return activated_conv3x3(g, images, 64); }
Sequence activated_conv3x3_128(CaseGraph& g, const Images& images) {
  return activated_conv3x3(g, images, 128);
}
Sequence activated_conv3x3_256(CaseGraph& g, const Images& images) {
  return activated_conv3x3(g, images, 256);
}
// It is not stored where the weight gradient recomputes it.
Sequence weight_grad3x3(CaseGraph& g, const Images& images) {
  const Shape shape = images.with(64);
  const TensorId z = add_activated_conv3x3(g, shape);
  g.add_op(OpKind::conv_grad_weight, {z, g.activation(shape)},
           {g.tensor({64, 64, 3, 3}, g.dtype(), TensorKind::gradient)}, graph::ConvAttr{1, 1});
  return {{{0, 1, 2}}, {z}};
}

// The gradient of its input, and the sums of the norm before it.
Sequence gated3x3(CaseGraph& g, const Images& images, std::int64_t channels) {
  const Shape shape = images.with(channels);
  const TensorId weights = g.tensor({channels, channels, 3, 3}, DType::f32, TensorKind::parameter);
  const TensorId dx = g.activation(shape);
  g.add_op(OpKind::conv_grad_input, {g.activation(shape), weights}, {dx}, graph::ConvAttr{1, 1});
  const NormGradient norm(g, shape);
  const TensorId dy = g.activation(shape);
  norm.add_stats(g, dx);
  norm.add_apply(g, dx, norm.affine, dy);
  return {{{0, 1}}, {dx}, {dy}};  // the gradient between is rounded too
}
Sequence gated3x3_64(CaseGraph& g, const Images& images) { return gated3x3(g, images, 64); }
Sequence gated3x3_128(CaseGraph& g, const Images& images) { return gated3x3(g, images, 128); }
Sequence gated3x3_256(CaseGraph& g, const Images& images) { return gated3x3(g, images, 256); }

// All that a 1x1 convolution's backward pass is between the norm after it and the norm before it.
void add_between_norms(CaseGraph& g, const NormGradient& before, TensorId x, const Images& images,
                       Sequence& sequence) {
  const Shape out = images.with(256), in = images.with(64);
  const TensorId dy = g.activation(out);
  NormGradient(g, out).add_apply(g, g.activation(out), kNone, dy);
  const TensorId dx = add_conv_grad_input(g, dy, out, in);
  before.add_stats(g, dx);
  add_conv_grad_weight(g, x, dy, in, out);
  before.add_apply(g, dx, before.affine, g.activation(in));
  sequence.between.insert({dy, dx});
}
Sequence between_norms(CaseGraph& g, const Images& images) {
  const Shape in = images.with(64);
  const NormGradient before(g, in);
  const TensorId x = g.activation(in);
  g.add_op(OpKind::affine_act, {before.y, before.affine, kNone, kNone}, {x, kNone}, graph::ActAttr{});
  Sequence sequence{{{1, 2, 3, 4}}, {}};
  add_between_norms(g, before, x, images, sequence);
  return sequence;
}

// Forward and back: what the convolution reads is made twice, and written not at all.
Sequence expanded_and_back(CaseGraph& g, const Images& images) {
  const NormGradient before(g, images.with(64));
  const TensorId x = add_expanded_activation(g, before, images);
  Sequence sequence{{{0, 1, 2}, {1, 3, 4, 5, 6}}, {x}};
  add_between_norms(g, before, x, images, sequence);
  return sequence;
}

// The gradients again without a norm before the convolution.
Sequence after_norm(CaseGraph& g, const Images& images) {
  const Shape out = images.with(256), in = images.with(64);
  const TensorId dy = g.activation(out);
  NormGradient(g, out).add_apply(g, g.activation(out), kNone, dy);
  add_conv_grad_input(g, dy, out, in);
  add_conv_grad_weight(g, g.activation(in), dy, in, out);
  return {{{0, 1, 2}}, {dy}};
}

// Back through a norm and a convolution, to the sums of the norm before.
Sequence through_norm(CaseGraph& g, const Images& images, std::int64_t from, std::int64_t to, bool in_place) {
  const Shape out = images.with(to), in = images.with(from);
  const TensorId gradient = g.activation(out), dy = g.activation(out);
  NormGradient(g, out).add_apply(g, gradient, kNone, dy);
  const TensorId dx = add_conv_grad_input(g, dy, out, in);
  const NormGradient before(g, in);
  before.add_stats(g, dx);
  add_conv_grad_weight(g, g.activation(in), dy, in, out);
  const TensorId last = g.activation(in);
  before.add_apply(g, dx, before.affine, last);
  if (!in_place) return {{{0, 1, 2}}, {dx}, {last}};
  return {{{0, 1, 2}}, {dx, gradient}, {last}, gradient, dy};
}
Sequence through_norm_128(CaseGraph& g, const Images& images) {
  return through_norm(g, images, 128, 384, false);
}
Sequence through_norm_256(CaseGraph& g, const Images& images) {
  return through_norm(g, images, 256, 128, false);
}
Sequence through_norm_in_place(CaseGraph& g, const Images& images) {
  return through_norm(g, images, 256, 256, true);
}
Sequence through_norm_widest(CaseGraph& g, const Images& images) {
  return through_norm(g, images, 256, 1024, false);
}

// The tensors that no op writes, with random values that suit their first reader.
class Inputs {
 public:
  Inputs(const graph::Graph& graph, DType dtype) : graph_(graph) {
    std::set<TensorId> written{kNone};
    for (std::size_t position = 0; position < graph.ops().size(); ++position) {
      const bench::OpCase op_case{"", graph, position};
      const graph::Op& op = op_case.op();
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        if (written.contains(op.inputs[i]) || inputs_.contains(op.inputs[i])) continue;
        inputs_[op.inputs[i]] = {position, i, bench::input_values(op_case, i, 7 + position)};
      }
      written.insert(op.outputs.begin(), op.outputs.end());
    }
    for (const graph::Op& op : graph.ops()) {
      if (op.kind == OpKind::conv || op.kind == OpKind::conv_grad_input) round(op.inputs[1], dtype);
      if (op.kind == OpKind::max_pool_grad) coarsen(op.inputs[0]);
      if (op.kind == OpKind::norm_grad_stats) open_or_close(op.inputs[2], op.inputs[3]);
      if (op.kind == OpKind::norm_grad_apply) {
        open_or_close(op.inputs[1], op.inputs[2]);
        weigh_sums(op);
      }
    }
  }

  void write(backend::Executable& executable) const {
    for (const auto& [id, input] : inputs_)
      bench::write_input({"", graph_, input.position}, input.index, input.values, executable);
  }

 private:
  struct Input {
    std::size_t position, index;  // of its first reader, and which of that one's inputs it is
    std::vector<float> values;
  };

  // Calls visit(channel, value) for every element of an activation.
  template <typename Visit>
  void for_each(TensorId id, Visit&& visit) {
    const Shape& shape = graph_.tensor(id).shape;
    std::vector<float>& values = inputs_.at(id).values;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto plane = static_cast<std::int64_t>(i) / (shape.h() * shape.w());
      visit(static_cast<std::size_t>(plane % shape.c()), values[i]);
    }
  }

  // Weights that kernels need not round: results then differ by the rounding of activations alone.
  void round(TensorId id, DType dtype) {
    const graph::Tensor narrow{"", graph_.tensor(id).shape, dtype, TensorKind::activation};
    std::vector<std::byte> memory(plan::stored_bytes(narrow, plan::Layout::plain));
    plan::store(narrow, plan::Layout::plain, inputs_.at(id).values, memory.data());
    plan::load(narrow, plan::Layout::plain, memory.data(), inputs_.at(id).values);
  }

  // Multiples of an eighth: where windows overlap, their sum needs no rounding, be it stored or not.
  void coarsen(TensorId id) {
    for (float& value : inputs_.at(id).values) value = std::round(value * 8.0F) / 8.0F;
  }

  // Scales, then biases: an input, or what a norm makes of its own.
  std::vector<float> scales_of(TensorId affine) const {
    if (const auto input = inputs_.find(affine); input != inputs_.end()) return input->second.values;
    const auto norm = std::ranges::find_if(graph_.ops(), [&](const graph::Op& op) {
      return op.kind == OpKind::norm_stats && op.outputs[0] == affine;
    });
    const auto input = [&](std::size_t i) { return inputs_.at(norm->inputs[i]).values; };
    const std::vector<float> gamma = input(1), beta = input(2), sums = input(5);
    const Shape& y = graph_.tensor(norm->inputs[0]).shape;
    const auto rows = static_cast<float>(y.n() * y.h() * y.w());
    std::vector<float> scales(sums.size());
    for (std::size_t c = 0; c < gamma.size(); ++c) {
      const float mean = sums[c] / rows, variance = sums[gamma.size() + c] / rows - mean * mean;
      scales[c] = gamma[c] / std::sqrt(variance + norm->attr<graph::NormAttr>().epsilon);
      scales[gamma.size() + c] = beta[c] - mean * scales[c];
    }
    return scales;
  }

  // A gate is the sign of affine(y). Where that is so small that its rounding could decide, it is made
  // larger: y, below 8, is rounded by at most 2^-6 in bf16, and the scale is at most about 2.
  void open_or_close(TensorId y, TensorId affine) {
    if (affine == kNone) return;
    constexpr float kClear = 0x1p-4F;
    const std::vector<float> scales = scales_of(affine);
    std::size_t open = 0;
    for_each(y, [&](std::size_t c, float& value) {
      const float scale = scales[c], gate = scale * value + scales[scales.size() / 2 + c];
      if (std::abs(gate) < kClear) value += std::copysign(kClear, gate) / scale;
      if (gate > 0.0F) ++open;
    });
    const std::size_t all = inputs_.at(y).values.size();
    EXPECT_GT(std::min(open, all - open), all / 8) << "a gate with one side only";
  }

  // The norm's sums grow with the rows, so that what is taken off the gradient for them can be seen. Where
  // the gradient is an input, that is added to it before: what is left has a mean of about zero, as in
  // training, and a sum over rows shows when some are missing.
  void weigh_sums(const graph::Op& op) {
    const TensorId gradient = op.inputs[0], y = op.inputs[1], dgamma = op.inputs[6], dbeta = op.inputs[7];
    if (!inputs_.contains(dgamma)) return;
    if (inputs_.contains(gradient)) {
      const std::vector<float>& saved = inputs_.at(op.inputs[4]).values;
      const std::vector<float>&by_gamma = inputs_.at(dgamma).values, &by_beta = inputs_.at(dbeta).values;
      const float* of_y = inputs_.at(y).values.data();
      for_each(gradient, [&](std::size_t c, float& value) {
        value += by_beta[c] + by_gamma[c] * (*of_y++ - saved[c]) * saved[saved.size() / 2 + c];
      });
    }
    const Shape& shape = graph_.tensor(y).shape;
    for (TensorId sums : {dgamma, dbeta}) {
      for (float& sum : inputs_.at(sums).values) sum *= static_cast<float>(shape.n() * shape.h() * shape.w());
    }
  }

  const graph::Graph& graph_;
  std::map<TensorId, Input> inputs_;
};

std::unique_ptr<backend::Executable> run(plan::Plan plan, const Inputs& inputs, backend::Backend& on,
                                         int times) {
  auto executable = on.compile(std::make_shared<plan::Plan>(std::move(plan)), on.make_state());
  for (int i = 0; i < times; ++i) {
    inputs.write(*executable);
    executable->run(backend::Section::compute);
  }
  return executable;
}

bool are_merged(const plan::Plan& plan, const std::vector<int>& ops) {
  return std::ranges::any_of(plan.groups, [&](const plan::Group& group) {
    std::vector<int> all = group.ops;
    all.insert(all.end(), group.recomputes.begin(), group.recomputes.end());
    std::ranges::sort(all);
    return std::ranges::includes(all, ops);
  });
}

// Which GPUs have the kernel: Hopper, in a build with its code, or all.
enum class Merged : std::uint8_t { on_hopper, everywhere };

struct Row {
  const char* name;
  Sequence (*make)(CaseGraph&, const Images&);
  Merged merged;

  bool merged_on(const backend::Backend& gpu) const {
    return merged == Merged::everywhere ||
           std::ranges::any_of(gpu.group_rows(),
                               [](const plan::GroupRow& each) { return each.name == "join"; });
  }
};

using Parameter = std::tuple<Row, DType, Images>;

class MergedTest : public testing::TestWithParam<Parameter> {};

TEST_P(MergedTest, AgreesWithReference) {
  const auto& [row, dtype, images] = GetParam();
  CaseGraph maker(dtype);
  const Sequence sequence = row.make(maker, images);
  const graph::Graph graph = maker.take();
  const auto reference = backend::make_reference_backend();
  std::optional<Inputs> inputs;
  std::unique_ptr<backend::Executable> expected;
  constexpr int kFastest = -1, kLast = 99;
  for (const int candidate : {0, 1, 2, 3, 4, kLast, kFastest}) {
    SCOPED_TRACE(fmt::format("candidate {}", candidate));
    std::unique_ptr<backend::Backend> on;
    try {
      on = backend::make_backend({.device = "cuda", .candidate = candidate});
    } catch (const UnavailableError& e) {
      GTEST_SKIP() << e.what();
    }
    if (!on->supports(graph::OpKind::conv, dtype)) GTEST_SKIP() << "not in this dtype";
    if (!inputs) {
      inputs.emplace(graph, dtype);
      expected = run(plan::make_plan(graph, *reference), *inputs, *reference, 1);
    }
    plan::Plan plan = plan::make_plan(graph, *on);
    if (sequence.over != kNone) {
      plan.placements[static_cast<std::size_t>(sequence.written)].offset =
          plan.placement(sequence.over).offset;
    }
    // Twice: what blocks count each other by is as it was when the first run ends.
    const auto actual = run(std::move(plan), *inputs, *on, 2);
    if (row.merged_on(*on)) {
      for (const std::vector<int>& ops : sequence.together) EXPECT_TRUE(are_merged(actual->plan(), ops));
    }
    cases::expect_agreement(*actual, *expected, dtype, sequence.between, sequence.rounded_twice);
  }
}

const Row kRows[] = {
    {"gated_64", gated_64, Merged::on_hopper},
    {"gated_384", gated_384, Merged::on_hopper},
    {"joined", joined_apart, Merged::on_hopper},
    {"joined_in_place", joined_in_place, Merged::on_hopper},
    {"joined_64", joined_64, Merged::on_hopper},
    {"joined_two_norms_256", joined_two_norms_256, Merged::on_hopper},
    {"joined_two_norms_64", joined_two_norms_64, Merged::on_hopper},
    {"joined_sparse_256", joined_sparse_256, Merged::on_hopper},
    {"joined_sparse_64", joined_sparse_64, Merged::on_hopper},
    {"affine", affine_alone, Merged::everywhere},
    {"affine_and_shortcut", affine_and_shortcut, Merged::everywhere},
    {"stem", stem, Merged::everywhere},
    {"between_norms", between_norms, Merged::on_hopper},
    {"after_norm", after_norm, Merged::on_hopper},
    {"summed_64", summed_64, Merged::everywhere},
    {"summed_256", summed_256, Merged::everywhere},
    {"summed_384", summed_384, Merged::everywhere},
    {"expanded_activation", expanded_activation, Merged::on_hopper},
    {"expanded_and_back", expanded_and_back, Merged::on_hopper},
};

// Their channels are many: fewer rows, which are still more tiles than blocks.
const Row kBlended[] = {
    {"activated_128", activated_128, Merged::on_hopper},
    {"activated_to_128", activated_to_128, Merged::on_hopper},
    {"join_64", join_64, Merged::on_hopper},
    {"join_128", join_128, Merged::on_hopper},
    {"join_256", join_256, Merged::on_hopper},
    {"join_two_norms", join_two_norms, Merged::on_hopper},
    {"through_norm_128", through_norm_128, Merged::on_hopper},
    {"through_norm_256", through_norm_256, Merged::on_hopper},
    {"through_norm_in_place", through_norm_in_place, Merged::on_hopper},
};
const Images kFewerImages[] = {{"few", 3, 7, 7}, {"many", 5, 60, 61}};
const Row kWidest[] = {
    {"join_widest", join_widest, Merged::on_hopper},
    {"through_norm_widest", through_norm_widest, Merged::on_hopper},
};

// Tiles are some rows of an image: one tile, an odd number of rows in several, and more tiles than blocks.
const Row kConv3x3[] = {
    {"activated_conv3x3_64", activated_conv3x3_64, Merged::on_hopper},
    {"activated_conv3x3_128", activated_conv3x3_128, Merged::on_hopper},
    {"weight_grad3x3", weight_grad3x3, Merged::on_hopper},
    {"gated3x3_64", gated3x3_64, Merged::on_hopper},
    {"gated3x3_128", gated3x3_128, Merged::on_hopper},
};
const Row kWideConv3x3[] = {
    {"activated_conv3x3_256", activated_conv3x3_256, Merged::on_hopper},
    {"gated3x3_256", gated3x3_256, Merged::on_hopper},
};
const Images kConv3x3Images[] = {{"few", 1, 13, 14}, {"odd", 2, 29, 30}, {"many", 27, 29, 30}};

// Tiles have 128 rows. Even with two blocks on each of a Hopper's 132 multiprocessors, the many are more
// tiles than blocks.
const Images kImages[] = {{"few", 3, 7, 7}, {"many", 12, 55, 55}};

// A block walks down part of an image, at most 56 columns wide: more rows than its rings have, and two parts
// side by side.
const Images kStems[] = {{"tall", 76, 70, 3}, {"wide", 2, 5, 66}};

std::string parameter_name(const testing::TestParamInfo<Parameter>& info) {
  const auto& [row, dtype, images] = info.param;
  return fmt::format("{}_{}_{}_rows", row.name, name_of(dtype), images.name);
}

INSTANTIATE_TEST_SUITE_P(Ops, MergedTest,
                         testing::Combine(testing::ValuesIn(kRows), testing::Values(DType::f16, DType::bf16),
                                          testing::ValuesIn(kImages)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Blended, MergedTest,
                         testing::Combine(testing::ValuesIn(kBlended),
                                          testing::Values(DType::f16, DType::bf16),
                                          testing::ValuesIn(kFewerImages)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Conv3x3, MergedTest,
                         testing::Combine(testing::ValuesIn(kConv3x3),
                                          testing::Values(DType::f16, DType::bf16),
                                          testing::ValuesIn(kConv3x3Images)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(WideConv3x3, MergedTest,
                         testing::Combine(testing::ValuesIn(kWideConv3x3),
                                          testing::Values(DType::f16, DType::bf16),
                                          testing::Values(kConv3x3Images[0])),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Widest, MergedTest,
                         testing::Combine(testing::ValuesIn(kWidest),
                                          testing::Values(DType::f16, DType::bf16),
                                          testing::Values(kFewerImages[0])),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Stem, MergedTest,
                         testing::Combine(testing::Values(Row{"stem", stem, Merged::everywhere}),
                                          testing::Values(DType::f16, DType::bf16, DType::f32),
                                          testing::ValuesIn(kStems)),
                         parameter_name);

}  // namespace
}  // namespace redline
