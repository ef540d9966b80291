// The parts of oneDNN that Redline uses. Its headers stay in this folder; versions 2 and 3 are supported.
#pragma once

#include <cstddef>
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

// One tensor of a primitive: its name there, its place and layout in our memory, and the layout that the
// primitive wants.
struct Operand {
  int argument;  // DNNL_ARG_…
  std::byte* memory;
  dnnl::memory::desc ours, wanted;
  bool output = false;
  Pack pack = {};  // how to bring it into the wanted form; when empty, oneDNN does
};

// Runs a primitive over operands, and reorders those that it wants in another layout through scratch.
Step make_primitive_step(dnnl::primitive primitive, std::vector<Operand> operands, Scratch& scratch);

// The fp32 weights' gradient of a 1x1 convolution with stride 1, all three tensors in our blocked layouts.
dnnl::primitive conv_grad_weight_primitive(const graph::Shape& x, const graph::Shape& dw,
                                           const graph::Shape& dy, graph::DType dtype);

// True when a primitive falls back to oneDNN's slow reference loops.
bool is_slow(const dnnl::primitive_desc_base& desc);

}  // namespace redline::backend::cpu
