// Convolutions by oneDNN. Weights are fp32 masters in the layout that its forward kernels read; the other
// passes, and bf16, get them through scratch, repacked right before use while they are in cache.
#include <utility>

#include "backend/cpu/onednn.h"
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

// Asks for a primitive on our activation layouts, and lets oneDNN choose where that would be slow (CPUs and
// shapes for which it has no blocked kernel).
template <typename Make>
auto choose(Descs ours, Descs any, const Make& make) {
  auto desc = make(ours);
  return is_slow(desc) ? make(any) : desc;
}

Operand weights_operand(const OpView& op, const memory::desc& ours, const memory::desc& wanted) {
  return {DNNL_ARG_WEIGHTS, op.in(1), ours,
          wanted,           false,    find_pack(op.in_tensor(1).shape, wanted).value_or(Pack())};
}

struct ConvTensors {
  graph::Tensor x, w, y;
  plan::Layout x_layout, w_layout, y_layout;

  graph::DType dtype() const { return x.dtype; }
  memory::desc x_desc() const { return dnnl_desc(x.shape, dtype(), x_layout); }
  memory::desc y_desc() const { return dnnl_desc(y.shape, dtype(), y_layout); }
  memory::desc w_desc() const { return dnnl_desc(w.shape, graph::DType::f32, w_layout); }
  Descs ours() const { return {x_desc(), dnnl_any(w.shape, dtype()), y_desc()}; }
  Descs any() const {
    return {dnnl_any(x.shape, dtype()), dnnl_any(w.shape, dtype()), dnnl_any(y.shape, dtype())};
  }
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
  const ConvTensors t{op.in_tensor(0), op.in_tensor(1), op.out_tensor(0),
                      op.in_layout(0), op.in_layout(1), op.out_layout(0)};
  const Geometry geometry(op.attr<graph::ConvAttr>());
  const auto desc = choose(t.ours(), t.any(), [&](const Descs& d) { return forward_desc(d, geometry); });
  return make_primitive_step(dnnl::convolution_forward(desc),
                             {{DNNL_ARG_SRC, op.in(0), t.x_desc(), desc.src_desc()},
                              weights_operand(op, t.w_desc(), desc.weights_desc()),
                              {DNNL_ARG_DST, op.out(0), t.y_desc(), desc.dst_desc(), true}},
                             scratch);
}

Step make_conv_grad_input(const OpView& op, Scratch& scratch) {
  const ConvTensors t{op.out_tensor(0), op.in_tensor(1), op.in_tensor(0),
                      op.out_layout(0), op.in_layout(1), op.in_layout(0)};
  const Geometry geometry(op.attr<graph::ConvAttr>());
  const auto desc = choose(t.ours(), t.any(), [&](const Descs& d) { return grad_input_desc(d, geometry); });
  return make_primitive_step(dnnl::convolution_backward_data(desc),
                             {{DNNL_ARG_DIFF_DST, op.in(0), t.y_desc(), desc.diff_dst_desc()},
                              weights_operand(op, t.w_desc(), desc.weights_desc()),
                              {DNNL_ARG_DIFF_SRC, op.out(0), t.x_desc(), desc.diff_src_desc(), true}},
                             scratch);
}

Step make_conv_grad_weight(const OpView& op, Scratch& scratch) {
  if (should_unfold(op.in_tensor(0).shape, op.out_tensor(0).shape, op.in_tensor(1).shape)) {
    return make_unfolded_grad_weight(op, scratch);
  }
  const ConvTensors t{op.in_tensor(0), op.out_tensor(0), op.in_tensor(1),
                      op.in_layout(0), op.out_layout(0), op.in_layout(1)};
  const Geometry geometry(op.attr<graph::ConvAttr>());
  const memory::desc any_dw = dnnl_any(t.w.shape, graph::DType::f32);
  const auto desc =
      choose(t.ours(), t.any(), [&](const Descs& d) { return grad_weight_desc(d, any_dw, geometry); });
  return make_primitive_step(dnnl::convolution_backward_weights(desc),
                             {{DNNL_ARG_SRC, op.in(0), t.x_desc(), desc.src_desc()},
                              {DNNL_ARG_DIFF_DST, op.in(1), t.y_desc(), desc.diff_dst_desc()},
                              {DNNL_ARG_DIFF_WEIGHTS, op.out(0), t.w_desc(), desc.diff_weights_desc(), true}},
                             scratch);
}

}  // namespace redline::backend::cpu
