#include <algorithm>
#include <utility>

#include "backend/cuda/step.h"

namespace redline::backend::cuda {
namespace {

using graph::DType;
using graph::OpKind;
using graph::TensorId;

template <typename T>
const T* rows_of(const DeviceMemory& table) {
  return reinterpret_cast<const T*>(table.data());
}

}  // namespace

UpdateSteps::UpdateSteps(const plan::Plan& plan, Address address, Address copy, DType copy_type,
                         Shared& shared)
    : plan_(plan),
      address_(std::move(address)),
      copy_(std::move(copy)),
      copy_type_(copy_type),
      shared_(shared) {}

bool UpdateSteps::makes(OpKind kind) {
  return kind == OpKind::sgd || kind == OpKind::lars || kind == OpKind::ema ||
         kind == OpKind::gradient_check || kind == OpKind::snapshot || kind == OpKind::restore;
}

Step UpdateSteps::make(const graph::Op& op) {
  const auto* flags = reinterpret_cast<const float*>(address_(op.inputs[0]));
  switch (op.kind) {
    case OpKind::gradient_check:
      return make_check(op);
    case OpKind::snapshot:
      return make_copies(op, flags + graph::kAccumulateKeep);
    case OpKind::restore:
      return make_copies(op, flags + graph::kFinite);
    default:
      return make_optimizer(op);
  }
}

Step UpdateSteps::make_optimizer(const graph::Op& first) {
  if (!made_.insert(first.kind).second) return {};
  std::vector<UpdateChunk> chunks;
  for (const graph::Op& op : plan_.graph().ops()) {
    if (op.kind == first.kind) add_chunks(op, chunks);
  }
  const auto table = make_table(chunks);
  const int count = static_cast<int>(chunks.size());
  const std::size_t last = first.inputs.size() - 1;
  const auto* scalars = reinterpret_cast<const float*>(address_(first.inputs[last - 1]));
  const auto* check = reinterpret_cast<const float*>(address_(first.inputs[last]));
  if (first.kind == OpKind::sgd) {
    const auto& attr = first.attr<graph::SgdAttr>();
    const UpdateRule rule{attr.momentum, attr.nesterov, 0.0F, 0.0F};
    return
        [=](cudaStream_t stream) { sgd(rows_of<UpdateChunk>(*table), count, rule, scalars, check, stream); };
  }
  if (first.kind == OpKind::lars) {
    const auto& attr = first.attr<graph::LarsAttr>();
    const UpdateRule rule{attr.momentum, false, attr.trust, attr.epsilon};
    shared_.need(chunks.size() * 2 * sizeof(float));
    return [=, &shared = shared_](cudaStream_t stream) {
      lars(rows_of<UpdateChunk>(*table), count, rule, scalars, check, reinterpret_cast<float*>(shared.work()),
           stream);
    };
  }
  return [=](cudaStream_t stream) { ema(rows_of<UpdateChunk>(*table), count, scalars, check, stream); };
}

Step UpdateSteps::make_check(const graph::Op& op) {
  constexpr std::size_t kFirst = 4;  // gradient
  std::vector<UpdateChunk> chunks;
  std::vector<int> first{0};
  for (std::size_t i = kFirst; i < op.inputs.size(); ++i) {
    const graph::Tensor& g = plan_.graph().tensor(op.inputs[i]);
    const std::int64_t total = plan::stored_elements(g.shape, plan_.placement(op.inputs[i]).layout);
    for (std::int64_t from = 0; from < total; from += kChunk) {
      UpdateChunk chunk{};
      chunk.g = address_(op.inputs[i]) + from * static_cast<std::int64_t>(graph::size_of(g.dtype));
      chunk.g_type = type_of(g.dtype);
      chunk.count = static_cast<int>(std::min<std::int64_t>(kChunk, total - from));
      chunks.push_back(chunk);
    }
    first.push_back(static_cast<int>(chunks.size()));
  }
  const auto table = make_table(chunks);
  const auto starts = make_table(first);
  const auto out = [&](std::size_t i) { return reinterpret_cast<float*>(address_(op.outputs[i])); };
  GradientCheck args{rows_of<UpdateChunk>(*table),
                     static_cast<int>(chunks.size()),
                     rows_of<int>(*starts),
                     static_cast<int>(first.size()) - 1,
                     op.attr<graph::ScaleAttr>(),
                     reinterpret_cast<const float*>(address_(op.inputs[0])),
                     nullptr,
                     out(0),
                     out(1),
                     out(2),
                     out(3),
                     out(4)};
  shared_.need(chunks.size() * sizeof(float));
  return [table, starts, args, &shared = shared_](cudaStream_t stream) mutable {
    args.partials = reinterpret_cast<float*>(shared.work());
    gradient_check(args, stream);
  };
}

Step UpdateSteps::make_copies(const graph::Op& op, const float* flag) {
  std::vector<CopyItem> items;
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    const graph::Tensor& tensor = plan_.graph().tensor(op.outputs[i]);
    items.push_back({reinterpret_cast<const float*>(address_(op.inputs[i + 1])),
                     reinterpret_cast<float*>(address_(op.outputs[i])),
                     static_cast<int>(tensor.shape.elements())});
  }
  const auto table = make_table(items);
  const int count = static_cast<int>(items.size());
  return [=](cudaStream_t stream) { copy_unless(flag, rows_of<CopyItem>(*table), count, stream); };
}

void UpdateSteps::add_chunks(const graph::Op& op, std::vector<UpdateChunk>& chunks) const {
  const bool average = op.kind == OpKind::ema;
  const TensorId w_id = average ? op.inputs[1] : op.inputs[0];
  const TensorId v_id = average ? op.inputs[0] : op.inputs[2];
  const graph::Tensor& w = plan_.graph().tensor(w_id);
  const std::int64_t total = plan::stored_elements(w.shape, plan_.placement(w_id).layout);
  const int parts = static_cast<int>((total + kChunk - 1) / kChunk);
  const DType g_type = average ? DType::f32 : plan_.graph().tensor(op.inputs[1]).dtype;
  std::byte* copy = nullptr;
  if (!average && copy_type_ != DType::f32 && w.shape.rank() > 1) copy = copy_(w_id);
  float decay = 0.0F;
  if (op.kind == OpKind::sgd) decay = op.attr<graph::SgdAttr>().weight_decay;
  if (op.kind == OpKind::lars) decay = op.attr<graph::LarsAttr>().weight_decay;
  const int first = static_cast<int>(chunks.size());
  const auto bytes = [](DType dtype) { return static_cast<std::int64_t>(graph::size_of(dtype)); };
  for (int part = 0; part < parts; ++part) {
    const std::int64_t from = std::int64_t{part} * kChunk;
    UpdateChunk chunk{};
    chunk.w = reinterpret_cast<float*>(address_(w_id)) + from;
    chunk.g = average ? nullptr : address_(op.inputs[1]) + from * bytes(g_type);
    chunk.v = reinterpret_cast<float*>(address_(v_id)) + from;
    chunk.copy = copy == nullptr ? nullptr : copy + from * bytes(copy_type_);
    chunk.count = static_cast<int>(std::min<std::int64_t>(kChunk, total - from));
    chunk.first_chunk = first;
    chunk.chunks = parts;
    chunk.g_type = type_of(g_type);
    chunk.copy_type = type_of(copy_type_);
    chunk.weight_decay = decay;
    chunks.push_back(chunk);
  }
}

}  // namespace redline::backend::cuda
