// oneDNN behind the few things that Redline asks of it. Its headers stay in this folder; both its second and
// third major versions are spoken.
#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "backend/cpu/pack.h"
#include "backend/cpu/step.h"
#include "graph/tensor.h"
#include "plan/layout.h"

namespace redline::backend::cpu {

const dnnl::engine& dnnl_engine();
dnnl::stream& dnnl_stream();

dnnl::memory::data_type dnnl_type(graph::DType dtype);
dnnl::memory::desc dnnl_desc(const graph::Shape& shape, graph::DType dtype, plan::Layout layout);
dnnl::memory::desc dnnl_any(const graph::Shape& shape, graph::DType dtype);

// One tensor of a primitive: what it is called there, where and how it lies in our memory, and how the
// primitive wants it.
struct Operand {
  int argument;  // DNNL_ARG_…
  std::byte* memory;
  dnnl::memory::desc ours, wanted;
  bool output = false;
  Pack pack = {};  // how to bring it into the wanted form; when empty, oneDNN does
};

// Runs a primitive over operands, reordering through scratch those that it wants otherwise.
Step make_primitive_step(dnnl::primitive primitive, std::vector<Operand> operands, Scratch& scratch);

// The fp32 weights' gradient of a 1x1 convolution with stride 1, all three tensors in our blocked layouts.
dnnl::primitive conv_grad_weight_primitive(const graph::Shape& x, const graph::Shape& dw,
                                           const graph::Shape& dy, graph::DType dtype);

// True when a primitive falls back to oneDNN's slow reference loops.
bool is_slow(const dnnl::primitive_desc_base& desc);

}  // namespace redline::backend::cpu
