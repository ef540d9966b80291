#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "backend/cuda/step.h"

namespace redline::backend::cuda {
namespace {

namespace operands = graph::operands;
using graph::DType;
using graph::OpKind;

template <typename T>
const T* rows_of(const DeviceMemory& table) {
  return reinterpret_cast<const T*>(table.data());
}

std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(graph::size_of(dtype)); }

// Appends the chunks of one tensor; `fill` completes those that it is given, by the first element they have.
template <typename Fill>
void add_chunks(std::int64_t total, std::vector<UpdateChunk>& chunks, const Fill& fill) {
  const int first = static_cast<int>(chunks.size());
  const int parts = static_cast<int>((total + kChunk - 1) / kChunk);
  for (std::int64_t from = 0; from < total; from += kChunk) {
    UpdateChunk chunk{};
    chunk.count = static_cast<int>(std::min<std::int64_t>(kChunk, total - from));
    chunk.first_chunk = first;
    chunk.chunks = parts;
    fill(chunk, from);
    chunks.push_back(chunk);
  }
}

bool is_adam(OpKind kind) { return kind == OpKind::adamw || kind == OpKind::lamb; }

// What an optimizer's op has for one parameter alone.
struct PerParameter {
  float weight_decay, rate;
};

PerParameter per_parameter(const OpView& op) {
  const auto of = [](const auto& attr) { return PerParameter{attr.weight_decay, attr.rate}; };
  if (is_adam(op.kind())) return of(op.attr<graph::AdamAttr>());
  return op.kind() == OpKind::sgd ? of(op.attr<graph::SgdAttr>()) : of(op.attr<graph::LarsAttr>());
}

// Of any optimizer: all have weights and gradients first. It also writes the copy of a matrix or filter that
// kernels read.
void add_optimized(const GroupView& group, const OpView& op, std::vector<UpdateChunk>& chunks) {
  using In = operands::Optimizer;
  const graph::Tensor& w = op.in_tensor(In::w);
  const DType g_type = op.in_tensor(In::dw).dtype, copy_type = group.plan().weights;
  const bool copied = copy_type != DType::f32 && w.shape.rank() > 1;
  std::byte* copy = copied ? group.weights(op.op().inputs[In::w], copy_type) : nullptr;
  const PerParameter own = per_parameter(op);
  const bool adam = is_adam(op.kind());
  auto* v = adam ? op.in<float>(operands::Adam::v) : op.in<float>(In::v);
  auto* m = adam ? op.in<float>(operands::Adam::m) : nullptr;
  add_chunks(op.in_stored(In::w), chunks, [&](UpdateChunk& chunk, std::int64_t from) {
    chunk.w = op.in<float>(In::w) + from;
    chunk.g = op.in(In::dw) + from * bytes_of(g_type);
    chunk.v = v + from;
    chunk.m = adam ? m + from : nullptr;
    chunk.copy = copied ? copy + from * bytes_of(copy_type) : nullptr;
    chunk.g_type = type_of(g_type);
    chunk.copy_type = type_of(copy_type);
    chunk.weight_decay = own.weight_decay;
    chunk.rate = own.rate;
  });
}

void add_averaged(const OpView& op, std::vector<UpdateChunk>& chunks) {
  using operands::Ema;
  add_chunks(op.in_stored(Ema::value), chunks, [&](UpdateChunk& chunk, std::int64_t from) {
    chunk.w = op.in<float>(Ema::value) + from;
    chunk.v = op.in<float>(Ema::average) + from;
  });
}

// Where an update has the scalars and the check of its step.
std::pair<int, int> guards_of(OpKind kind) {
  using namespace operands;
  if (kind == OpKind::ema) return {Ema::scalars, Ema::check};
  if (is_adam(kind)) return {Adam::scalars, Adam::check};
  return {Optimizer::scalars, Optimizer::check};
}

// What launches the updates of an op's kind.
std::function<void(const Updates&, cudaStream_t)> rule_of(const OpView& op) {
  if (op.kind() == OpKind::ema) return ema;
  if (is_adam(op.kind())) {
    const auto& attr = op.attr<graph::AdamAttr>();
    const auto log_of = [](float beta) { return static_cast<float>(std::log(static_cast<double>(beta))); };
    const AdamRule rule{attr.beta1, attr.beta2, attr.epsilon, log_of(attr.beta1), log_of(attr.beta2)};
    return [rule, launch = op.kind() == OpKind::adamw ? adamw : lamb](
               const Updates& updates, cudaStream_t stream) { launch(updates, rule, stream); };
  }
  UpdateRule rule{};
  if (op.kind() == OpKind::sgd) {
    const auto& attr = op.attr<graph::SgdAttr>();
    rule = {attr.momentum, attr.nesterov, 0.0F, 0.0F};
  } else {
    const auto& attr = op.attr<graph::LarsAttr>();
    rule = {attr.momentum, false, attr.trust, attr.epsilon};
  }
  return [rule, launch = op.kind() == OpKind::sgd ? sgd : lars](const Updates& updates, cudaStream_t stream) {
    launch(updates, rule, stream);
  };
}

Step update_step(const GroupView& group, Shared& shared) {
  std::vector<UpdateChunk> chunks;
  for (const OpView& op : group.ops())
    op.kind() == OpKind::ema ? add_averaged(op, chunks) : add_optimized(group, op, chunks);
  const auto table = make_table(chunks);
  const OpView first = group.op();
  const auto [scalars, check] = guards_of(first.kind());
  if (first.kind() == OpKind::lars || first.kind() == OpKind::lamb)
    shared.need(chunks.size() * 2 * sizeof(float));
  Updates updates{};
  updates.chunks = rows_of<UpdateChunk>(*table);
  updates.count = static_cast<int>(chunks.size());
  updates.scalars = first.in<float>(scalars);
  updates.check = first.in<float>(check);
  return [table, updates, rule = rule_of(first), &shared](cudaStream_t stream) mutable {
    updates.partials = reinterpret_cast<float*>(shared.work());
    rule(updates, stream);
  };
}

Step check_step(const OpView& op, Shared& shared) {
  using Check = operands::GradientCheck;
  std::vector<UpdateChunk> chunks;
  std::vector<int> first{0};
  for (int i = Check::first_gradient; i < op.inputs(); ++i) {
    const DType type = op.in_tensor(i).dtype;
    add_chunks(op.in_stored(i), chunks, [&](UpdateChunk& chunk, std::int64_t from) {
      chunk.g = op.in(i) + from * bytes_of(type);
      chunk.g_type = type_of(type);
    });
    first.push_back(static_cast<int>(chunks.size()));
  }
  const auto table = make_table(chunks);
  const auto starts = make_table(first);
  GradientCheck args{};
  args.chunks = rows_of<UpdateChunk>(*table);
  args.count = static_cast<int>(chunks.size());
  args.first = rows_of<int>(*starts);
  args.tensors = static_cast<int>(first.size()) - 1;
  args.attr = op.attr<graph::ScaleAttr>();
  args.scalars = op.in<float>(Check::scalars);
  args.check = op.out<float>(Check::check);
  args.squares = op.out<float>(Check::squares);
  args.loss_scale = op.out<float>(Check::new_loss_scale);
  args.good_steps = op.out<float>(Check::new_good_steps);
  args.skipped_steps = op.out<float>(Check::new_skipped_steps);
  shared.need(chunks.size() * sizeof(float));
  return [table, starts, args, &shared](cudaStream_t stream) mutable {
    args.partials = reinterpret_cast<float*>(shared.work());
    gradient_check(args, stream);
  };
}

// The op's outputs from its inputs after the first, where a flag is 0.
Step copies_step(const OpView& op, const float* flag) {
  std::vector<CopyItem> items;
  for (int i = 0; i < op.outputs(); ++i) {
    const auto count = static_cast<int>(op.out_tensor(i).shape.elements());
    items.push_back({op.in<float>(i + 1), op.out<float>(i), count});
  }
  const auto table = make_table(items);
  const int count = static_cast<int>(items.size());
  return [=](cudaStream_t stream) { copy_unless(flag, rows_of<CopyItem>(*table), count, stream); };
}

}  // namespace

Candidates make_update(const GroupView& group, Shared& shared) {
  return only([group, &shared] { return update_step(group, shared); });
}

Candidates make_gradient_check(const GroupView& group, Shared& shared) {
  return only([op = group.op(), &shared] { return check_step(op, shared); });
}

Candidates make_snapshot(const GroupView& group, Shared&) {
  return only([op = group.op()] {
    return copies_step(op, op.in<float>(operands::Snapshot::scalars) + graph::kAccumulateKeep);
  });
}

Candidates make_restore(const GroupView& group, Shared&) {
  return only(
      [op = group.op()] { return copies_step(op, op.in<float>(operands::Restore::check) + graph::kFinite); });
}

}  // namespace redline::backend::cuda
