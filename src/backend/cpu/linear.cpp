// The fully connected layer by oneDNN's inner product. Weights and their gradients are plain fp32; in bf16
// they go through scratch.
#include "backend/cpu/onednn.h"

namespace redline::backend::cpu {
namespace {

using dnnl::memory;
using graph::DType;
using plan::Layout;

dnnl::inner_product_forward::primitive_desc forward_desc(const memory::desc& x, const memory::desc& w,
                                                         const memory::desc& b, const memory::desc& y) {
  constexpr auto kind = dnnl::prop_kind::forward_training;
#if DNNL_VERSION_MAJOR >= 3
  return {dnnl_engine(), kind, x, w, b, y};
#else
  return {{kind, x, w, b, y}, dnnl_engine()};
#endif
}

}  // namespace

// y is fp32 whatever x is: the loss is computed from it.
Step make_linear(const OpView& op, Scratch& scratch) {
  using operands::Linear;
  const graph::Tensor &x = op.in_tensor(Linear::x), &w = op.in_tensor(Linear::w),
                      &b = op.in_tensor(Linear::b), &y = op.out_tensor(Linear::y);
  const memory::desc x_desc = dnnl_desc(x.shape, x.dtype, Layout::plain);
  const memory::desc b_desc = dnnl_desc(b.shape, DType::f32, Layout::plain);
  const memory::desc y_desc = dnnl_desc(y.shape, DType::f32, Layout::plain);
  const auto desc = forward_desc(x_desc, dnnl_any(w.shape, x.dtype), b_desc, y_desc);
  return make_primitive_step(dnnl::inner_product_forward(desc),
                             {{DNNL_ARG_SRC, op.in(Linear::x), x_desc, desc.src_desc()},
                              {DNNL_ARG_WEIGHTS, op.in(Linear::w),
                               dnnl_desc(w.shape, DType::f32, Layout::plain), desc.weights_desc()},
                              {DNNL_ARG_BIAS, op.in(Linear::b), b_desc, b_desc},
                              {DNNL_ARG_DST, op.out(Linear::y), y_desc, desc.dst_desc(), true}},
                             scratch);
}

Step make_linear_grad_input(const OpView& op, Scratch& scratch) {
  using Grad = operands::LinearGradInput;
  const graph::Tensor &dy = op.in_tensor(Grad::dy), &w = op.in_tensor(Grad::w), &dx = op.out_tensor(Grad::dx);
  const memory::desc dy_desc = dnnl_desc(dy.shape, dy.dtype, Layout::plain);
  const memory::desc dx_desc = dnnl_desc(dx.shape, dx.dtype, Layout::plain);
  const memory::desc w_any = dnnl_any(w.shape, dx.dtype);
  const auto hint = forward_desc(dx_desc, w_any, memory::desc(), dy_desc);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::inner_product_backward_data::primitive_desc desc(dnnl_engine(), dx_desc, w_any, dy_desc, hint);
#else
  const dnnl::inner_product_backward_data::primitive_desc desc({dx_desc, w_any, dy_desc}, dnnl_engine(),
                                                               hint);
#endif
  return make_primitive_step(
      dnnl::inner_product_backward_data(desc),
      {{DNNL_ARG_DIFF_DST, op.in(Grad::dy), dy_desc, desc.diff_dst_desc()},
       {DNNL_ARG_WEIGHTS, op.in(Grad::w), dnnl_desc(w.shape, DType::f32, Layout::plain), desc.weights_desc()},
       {DNNL_ARG_DIFF_SRC, op.out(Grad::dx), dx_desc, desc.diff_src_desc(), true}},
      scratch);
}

Step make_linear_grad_weight(const OpView& op, Scratch& scratch) {
  using Grad = operands::LinearGradWeight;
  const graph::Tensor &x = op.in_tensor(Grad::x), &dy = op.in_tensor(Grad::dy), &dw = op.out_tensor(Grad::dw),
                      &db = op.out_tensor(Grad::db);
  const memory::desc x_desc = dnnl_desc(x.shape, x.dtype, Layout::plain);
  const memory::desc dy_desc = dnnl_desc(dy.shape, dy.dtype, Layout::plain);
  const memory::desc dw_any = dnnl_any(dw.shape, DType::f32);
  const memory::desc db_desc = dnnl_desc(db.shape, DType::f32, Layout::plain);
  const auto hint = forward_desc(x_desc, dnnl_any(dw.shape, x.dtype), memory::desc(), dy_desc);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::inner_product_backward_weights::primitive_desc desc(dnnl_engine(), x_desc, dw_any, db_desc,
                                                                  dy_desc, hint);
#else
  const dnnl::inner_product_backward_weights::primitive_desc desc({x_desc, dw_any, db_desc, dy_desc},
                                                                  dnnl_engine(), hint);
#endif
  return make_primitive_step(
      dnnl::inner_product_backward_weights(desc),
      {{DNNL_ARG_SRC, op.in(Grad::x), x_desc, desc.src_desc()},
       {DNNL_ARG_DIFF_DST, op.in(Grad::dy), dy_desc, desc.diff_dst_desc()},
       {DNNL_ARG_DIFF_WEIGHTS, op.out(Grad::dw), dnnl_desc(dw.shape, DType::f32, Layout::plain),
        desc.diff_weights_desc(), true},
       {DNNL_ARG_DIFF_BIAS, op.out(Grad::db), db_desc, db_desc, true}},
      scratch);
}

}  // namespace redline::backend::cpu
