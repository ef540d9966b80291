#include "backend/cuda/step.h"

namespace redline::backend::cuda {

Candidates make_softmax_cross_entropy(const GroupView& group, Shared& shared) {
  using In = operands::Loss;
  const OpView op = group.op();
  const graph::Shape& shape = op.in_tensor(In::logits).shape;
  shared.need(static_cast<std::size_t>(shape[0]) * 4 * sizeof(float));
  Loss loss{.rows = static_cast<int>(shape[0]),
            .classes = static_cast<int>(shape[1]),
            .smoothing = op.attr<graph::LossAttr>().smoothing,
            .logits = op.in<float>(In::logits),
            .labels = op.in<std::int32_t>(In::labels),
            .loss_scale = op.in<float>(In::loss_scale),
            .other_labels = op.in<std::int32_t>(In::other_labels),
            .label_weights = op.in<float>(In::label_weights),
            .metrics = op.out<float>(In::metrics),
            .gradient = op.out(In::gradient)};
  const Type type = loss.gradient == nullptr ? Type::f32 : type_of(op.out_tensor(In::gradient).dtype);
  return only([=, &shared](cudaStream_t stream) mutable {
    loss.row_results = reinterpret_cast<float*>(shared.work());
    softmax_cross_entropy(type, loss, stream);
  });
}

}  // namespace redline::backend::cuda
