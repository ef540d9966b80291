#include "backend/cuda/layouts.h"

#include <algorithm>

#include "graph/operands.h"

namespace redline::backend::cuda {

using graph::DType;
using graph::OpKind;
using graph::TensorId;
using graph::TensorKind;
using plan::Layout;

namespace {

// Three channels are stored as four where only convolutions and the image input touch them.
bool only_convolved(const graph::Graph& graph, TensorId id) {
  return std::ranges::none_of(graph.ops(), [&](const graph::Op& op) {
    const bool fits = op.kind == OpKind::normalize_image || op.kind == OpKind::conv ||
                      op.kind == OpKind::conv_grad_input || op.kind == OpKind::conv_grad_weight;
    return !fits && std::ranges::count(op.inputs, id) + std::ranges::count(op.outputs, id) > 0;
  });
}

// Whether every convolution of a three-channel image is the stem's, in bf16: cuDNN has a fast kernel for
// four channels in fp16 alone, and folded the image has sixteen.
bool folds(const graph::Graph& graph) {
  bool any = false;
  for (const graph::Op& op : graph.ops()) {
    if (op.kind != OpKind::conv && op.kind != OpKind::conv_grad_weight && op.kind != OpKind::conv_grad_input)
      continue;
    const graph::operands::ConvTensors tensors = graph::operands::conv_tensors(op);
    const graph::Shape& filter = graph.tensor(tensors.w).shape;
    if (filter[1] != 3) continue;
    const auto& attr = op.attr<graph::ConvAttr>();
    const bool stem = graph.tensor(tensors.x).dtype == DType::bf16 && filter[2] == 7 && filter[3] == 7 &&
                      attr.stride == 2 && attr.pad == 3;
    // An image of 7 x 7 could not be told from a filter.
    const bool like_filter = graph.tensor(tensors.x).shape.h() == 7;
    if (op.kind == OpKind::conv_grad_input || !stem || like_filter || !only_convolved(graph, tensors.x))
      return false;
    any = true;
  }
  return any;
}

}  // namespace

Layout layout_of(const graph::Graph& graph, TensorId id, bool hopper) {
  const graph::Tensor& tensor = graph.tensor(id);
  if (tensor.shape.rank() != 4) return Layout::plain;
  if (tensor.kind == TensorKind::input)
    return tensor.dtype == DType::u8 ? Layout::channels_last : Layout::plain;
  const bool image =
      tensor.shape.c() == 3 && (tensor.kind != TensorKind::activation || only_convolved(graph, id));
  if (!image) return Layout::channels_last;
  const bool foldable = tensor.kind == TensorKind::activation || tensor.shape.h() == 7;
  // On Hopper, our own kernels take four channels.
  const bool fold = foldable && !hopper && folds(graph);
  return fold ? Layout::folded : Layout::channels_last4;
}

}  // namespace redline::backend::cuda
