// Convolutions by oneDNN. Weights are fp32 masters in the layout that its forward kernels read; the other
// passes, and bf16, get them through scratch, repacked right before use while they are in cache.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "backend/cpu/blocks.h"
#include "backend/cpu/onednn.h"
#include "backend/cpu/threads.h"
#include "backend/cpu/unfold.h"
#include "base/error.h"

namespace redline::backend::cpu {
namespace {

using dnnl::memory;

struct Geometry {
  memory::dims strides, pads;
  explicit Geometry(const graph::ConvAttr& attr)
      : strides{attr.stride, attr.stride}, pads{attr.pad, attr.pad} {}
};

// The three tensors of a convolution as a primitive is asked for them.
struct Descs {
  memory::desc x, w, y;
};

dnnl::convolution_forward::primitive_desc forward_desc(const Descs& d, const Geometry& g) {
  constexpr auto kind = dnnl::prop_kind::forward_training;
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {dnnl_engine(), kind, algorithm, d.x, d.w, d.y, g.strides, g.pads, g.pads};
#else
  return {{kind, algorithm, d.x, d.w, d.y, g.strides, g.pads, g.pads}, dnnl_engine()};
#endif
}

dnnl::convolution_backward_data::primitive_desc grad_input_desc(const Descs& d, const Geometry& g) {
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {dnnl_engine(), algorithm, d.x, d.w, d.y, g.strides, g.pads, g.pads, forward_desc(d, g)};
#else
  return {{algorithm, d.x, d.w, d.y, g.strides, g.pads, g.pads}, dnnl_engine(), forward_desc(d, g)};
#endif
}

// `forward` has the weights in the activations' type; the gradient `dw` is fp32 always.
dnnl::convolution_backward_weights::primitive_desc grad_weight_desc(const Descs& d, const memory::desc& dw,
                                                                    const Geometry& g) {
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {dnnl_engine(), algorithm, d.x, dw, d.y, g.strides, g.pads, g.pads, forward_desc(d, g)};
#else
  return {{algorithm, d.x, dw, d.y, g.strides, g.pads, g.pads}, dnnl_engine(), forward_desc(d, g)};
#endif
}

// Requests a primitive for our activation layouts, and lets oneDNN choose if that would be slow (CPUs and
// shapes without a blocked kernel).
template <typename Make>
auto choose(Descs ours, Descs any, const Make& make) {
  auto desc = make(ours);
  return is_slow(desc) ? make(any) : desc;
}

// A convolution's weights as oneDNN is given them.
struct Weights {
  memory::dims dims;  // O,I,H,W, or with groups G,O,I,H,W
  memory::desc ours;  // fp32
  std::byte* at;
  // Between the masters and `at`, where they are not the same.
  Step spread = {}, gather = {};

  memory::desc any(graph::DType dtype) const { return {dims, dnnl_type(dtype), memory::format_tag::any}; }
};

// For groups whose channels fill only part of a block: its weights, [16i][16o] for every tap, are zero
// between groups. The masters have [channels of a group][16o].
struct MergedGroups {
  std::int64_t blocks, taps, channels;

  template <typename Visit>  // visit(master, merged): rows of weights that lie side by side in both
  void for_each_row(Visit&& visit) const {
    parallel_for(blocks * taps, [&](std::int64_t tap) {
      for (std::int64_t i = 0; i < kBlock; ++i) {
        const std::int64_t o = i / channels * channels;
        visit((tap * channels + i % channels) * kBlock + o, (tap * kBlock + i) * kBlock + o);
      }
    });
  }
};

Weights merged_weights(const graph::Tensor& w, std::byte* master_bytes) {
  const MergedGroups groups{w.shape[0] / kBlock, w.shape[2] * w.shape[3], w.shape[1]};
  const memory::dims dims{groups.blocks, kBlock, kBlock, w.shape[2], w.shape[3]};
  const memory::desc desc(dims, memory::data_type::f32, memory::format_tag::aBCde16c16b);
  const auto merged = std::make_shared<std::vector<float>>(desc.get_size() / sizeof(float));
  auto* master = reinterpret_cast<float*>(master_bytes);
  return {dims, desc, reinterpret_cast<std::byte*>(merged->data()),
          [=] {
            groups.for_each_row([&](std::int64_t from, std::int64_t to) {
              std::copy_n(master + from, groups.channels, merged->data() + to);
            });
          },
          [=] {
            groups.for_each_row([&](std::int64_t to, std::int64_t from) {
              std::copy_n(merged->data() + from, groups.channels, master + to);
            });
          }};
}

// Groups of any size. No model has them, and they need not be fast.
Weights plain_weights(const graph::Tensor& w, plan::Layout layout, std::byte* master, int groups) {
  const memory::dims dims{groups, w.shape[0] / groups, w.shape[1], w.shape[2], w.shape[3]};
  const memory::desc desc(dims, memory::data_type::f32, memory::format_tag::abcde);
  const auto plain = std::make_shared<std::vector<float>>(static_cast<std::size_t>(w.shape.elements()));
  return {dims, desc, reinterpret_cast<std::byte*>(plain->data()),
          [=] { plan::load(w, layout, master, *plain); }, [=] { plan::store(w, layout, *plain, master); }};
}

// Groups of fewer channels than a block are merged until they fill one: oneDNN's fast kernels take whole
// blocks.
Weights weights_of(const graph::Tensor& w, plan::Layout layout, std::byte* master, int groups) {
  const std::int64_t in = w.shape[1], out = w.shape[0] / groups;
  if (groups == 1) {
    return {{w.shape[0], in, w.shape[2], w.shape[3]}, dnnl_desc(w.shape, graph::DType::f32, layout), master};
  }
  if (in % kBlock == 0 && out % kBlock == 0) {
    const memory::dims dims{groups, out, in, w.shape[2], w.shape[3]};
    return {dims, {dims, memory::data_type::f32, memory::format_tag::aBCde16c16b}, master};
  }
  const bool merges = in == out && kBlock % in == 0 && w.shape[0] % kBlock == 0;
  return merges ? merged_weights(w, master) : plain_weights(w, layout, master, groups);
}

Operand weights_operand(const OpView& op, const Weights& weights, const memory::desc& wanted) {
  const bool grouped = weights.dims.size() > 4;
  return {DNNL_ARG_WEIGHTS,
          weights.at,
          weights.ours,
          wanted,
          false,
          grouped ? Pack() : find_pack(op.in_tensor(operands::EitherConv::w).shape, wanted).value_or(Pack())};
}

Step in_sequence(Step first, Step second) {
  if (!first || !second) return first ? first : second;
  return [first = std::move(first), second = std::move(second)] {
    first();
    second();
  };
}

struct ConvTensors {
  graph::Tensor x, y;
  plan::Layout x_layout, y_layout;
  Weights w;

  graph::DType dtype() const { return x.dtype; }
  memory::desc x_desc() const { return dnnl_desc(x.shape, dtype(), x_layout); }
  memory::desc y_desc() const { return dnnl_desc(y.shape, dtype(), y_layout); }
  Descs ours() const { return {x_desc(), w.any(dtype()), y_desc()}; }
  Descs any() const { return {dnnl_any(x.shape, dtype()), w.any(dtype()), dnnl_any(y.shape, dtype())}; }
};

}  // namespace

dnnl::primitive conv_grad_weight_primitive(const graph::Shape& x, const graph::Shape& dw,
                                           const graph::Shape& dy, graph::DType dtype) {
  const Descs descs{dnnl_desc(x, dtype, plan::Layout::blocked16), dnnl_any(dw, dtype),
                    dnnl_desc(dy, dtype, plan::Layout::blocked16)};
  const memory::desc dw_desc = dnnl_desc(dw, graph::DType::f32, plan::Layout::weights16);
  return dnnl::convolution_backward_weights(
      grad_weight_desc(descs, dw_desc, Geometry(graph::ConvAttr{1, 0})));
}

Step make_conv(const OpView& op, Scratch& scratch) {
  using operands::Conv;
  const auto& attr = op.attr<graph::ConvAttr>();
  const ConvTensors t{op.in_tensor(Conv::x), op.out_tensor(Conv::y), op.in_layout(Conv::x),
                      op.out_layout(Conv::y),
                      weights_of(op.in_tensor(Conv::w), op.in_layout(Conv::w), op.in(Conv::w), attr.groups)};
  const Geometry geometry(attr);
  const auto desc = choose(t.ours(), t.any(), [&](const Descs& d) { return forward_desc(d, geometry); });
  return in_sequence(t.w.spread,
                     make_primitive_step(dnnl::convolution_forward(desc),
                                         {{DNNL_ARG_SRC, op.in(Conv::x), t.x_desc(), desc.src_desc()},
                                          weights_operand(op, t.w, desc.weights_desc()),
                                          {DNNL_ARG_DST, op.out(Conv::y), t.y_desc(), desc.dst_desc(), true}},
                                         scratch));
}

Step make_conv_grad_input(const OpView& op, Scratch& scratch) {
  using Grad = operands::ConvGradInput;
  const auto& attr = op.attr<graph::ConvAttr>();
  const ConvTensors t{op.out_tensor(Grad::dx), op.in_tensor(Grad::dy), op.out_layout(Grad::dx),
                      op.in_layout(Grad::dy),
                      weights_of(op.in_tensor(Grad::w), op.in_layout(Grad::w), op.in(Grad::w), attr.groups)};
  const Geometry geometry(attr);
  const auto desc = choose(t.ours(), t.any(), [&](const Descs& d) { return grad_input_desc(d, geometry); });
  return in_sequence(
      t.w.spread,
      make_primitive_step(dnnl::convolution_backward_data(desc),
                          {{DNNL_ARG_DIFF_DST, op.in(Grad::dy), t.y_desc(), desc.diff_dst_desc()},
                           weights_operand(op, t.w, desc.weights_desc()),
                           {DNNL_ARG_DIFF_SRC, op.out(Grad::dx), t.x_desc(), desc.diff_src_desc(), true}},
                          scratch));
}

Step make_conv_grad_weight(const OpView& op, Scratch& scratch) {
  using Grad = operands::ConvGradWeight;
  const auto& attr = op.attr<graph::ConvAttr>();
  if (attr.groups == 1 && should_unfold(op.in_tensor(Grad::x).shape, op.out_tensor(Grad::dw).shape,
                                        op.in_tensor(Grad::dy).shape)) {
    return make_unfolded_grad_weight(op, scratch);
  }
  const ConvTensors t{
      op.in_tensor(Grad::x), op.in_tensor(Grad::dy), op.in_layout(Grad::x), op.in_layout(Grad::dy),
      weights_of(op.out_tensor(Grad::dw), op.out_layout(Grad::dw), op.out(Grad::dw), attr.groups)};
  const Geometry geometry(attr);
  const memory::desc any_dw = t.w.any(graph::DType::f32);
  const auto desc =
      choose(t.ours(), t.any(), [&](const Descs& d) { return grad_weight_desc(d, any_dw, geometry); });
  return in_sequence(
      make_primitive_step(dnnl::convolution_backward_weights(desc),
                          {{DNNL_ARG_SRC, op.in(Grad::x), t.x_desc(), desc.src_desc()},
                           {DNNL_ARG_DIFF_DST, op.in(Grad::dy), t.y_desc(), desc.diff_dst_desc()},
                           {DNNL_ARG_DIFF_WEIGHTS, t.w.at, t.w.ours, desc.diff_weights_desc(), true}},
                          scratch),
      t.w.gather);
}

}  // namespace redline::backend::cpu
