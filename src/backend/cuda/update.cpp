#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/cuda/groups.h"
#include "plan/traffic.h"

namespace redline::backend::cuda {
namespace {

template <typename T>
const T* rows_of(const DeviceMemory& table) {
  return reinterpret_cast<const T*>(table.data());
}

// Appends the chunks of one tensor, which is given as a single chunk of any size.
void add_chunks(UpdateChunk chunk, std::int64_t total, std::vector<UpdateChunk>& chunks) {
  const auto advance = []<typename T>(T*& array, Type type) {
    const std::size_t bytes = kChunk * (type == Type::f32 ? 4 : 2);
    if (array != nullptr) array = reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(array) + bytes);
  };
  chunk.first_chunk = static_cast<int>(chunks.size());
  chunk.chunks = static_cast<int>((total + kChunk - 1) / kChunk);
  for (std::int64_t from = 0; from < total; from += kChunk) {
    chunk.count = static_cast<int>(std::min<std::int64_t>(kChunk, total - from));
    chunks.push_back(chunk);
    for (float** array : {&chunk.w, &chunk.v, &chunk.m}) advance(*array, Type::f32);
    advance(chunk.g, chunk.g_type);
    advance(chunk.copy, chunk.copy_type);
  }
}

bool is_adam(OpKind kind) { return kind == OpKind::adamw || kind == OpKind::lamb; }

// The chunks of any optimizer's tensor: weights and gradients come first in all of them. The copy of a matrix
// or filter that kernels read is updated too.
void add_optimized(const GroupView& group, const OpView& op, std::vector<UpdateChunk>& chunks) {
  using In = operands::Optimizer;
  const bool adam = is_adam(op.kind());
  const DType copy_type = group.plan().weights;
  UpdateChunk whole{};
  whole.w = op.in<float>(In::w);
  whole.g = op.in(In::dw);
  whole.v = op.in<float>(adam ? int{operands::Adam::v} : int{In::v});
  if (adam) whole.m = op.in<float>(operands::Adam::m);
  if (copy_type != DType::f32 && op.in_tensor(In::w).shape.rank() > 1)
    whole.copy = group.weights(op.op().inputs[In::w], copy_type);
  whole.g_type = type_of(op.in_tensor(In::dw).dtype);
  whole.copy_type = type_of(copy_type);
  std::visit(
      [&](const auto& attr) {
        if constexpr (requires { attr.weight_decay; }) {
          whole.weight_decay = attr.weight_decay;
          whole.rate = attr.rate;
        }
      },
      op.op().attributes);
  add_chunks(whole, op.in_stored(In::w), chunks);
}

void add_averaged(const OpView& op, std::vector<UpdateChunk>& chunks) {
  using operands::Ema;
  add_chunks({.w = op.in<float>(Ema::value), .v = op.in<float>(Ema::average)}, op.in_stored(Ema::value),
             chunks);
}

// The positions of an update's scalars and check.
std::pair<int, int> guards_of(OpKind kind) {
  using namespace operands;
  if (kind == OpKind::ema) return {Ema::scalars, Ema::check};
  if (is_adam(kind)) return {Adam::scalars, Adam::check};
  return {Optimizer::scalars, Optimizer::check};
}

UpdateRule rule_of(const OpView& op) {
  if (is_adam(op.kind())) {
    const auto& attr = op.attr<graph::AdamAttr>();
    const auto log_of = [](float beta) { return static_cast<float>(std::log(static_cast<double>(beta))); };
    return {.kind = op.kind(),
            .adam = {attr.beta1, attr.beta2, attr.epsilon, log_of(attr.beta1), log_of(attr.beta2)}};
  }
  if (op.kind() == OpKind::ema) return {op.kind()};
  if (op.kind() == OpKind::sgd) {
    const auto& attr = op.attr<graph::SgdAttr>();
    return {op.kind(), {attr.momentum, attr.nesterov, 0.0F, 0.0F}};
  }
  const auto& attr = op.attr<graph::LarsAttr>();
  return {op.kind(), {attr.momentum, false, attr.trust, attr.epsilon}};
}

// Copies the op's inputs after the first to its outputs if `flag` is 0.
Candidates copies(const OpView& op, const float* flag) {
  std::vector<CopyItem> items;
  for (int i = 0; i < op.outputs(); ++i) {
    const auto count = static_cast<int>(op.out_tensor(i).shape.elements());
    items.push_back({op.in<float>(i + 1), op.out<float>(i), count});
  }
  const auto table = make_table(items);
  const int count = static_cast<int>(items.size());
  return only([=](cudaStream_t stream) { copy_unless(flag, rows_of<CopyItem>(*table), count, stream); });
}

}  // namespace

// One launch updates or averages every tensor.
plan::Group match_update(const plan::Node& update) {
  if (!plan::updates_one(update.op().kind)) return {};
  plan::Group group;
  for (int i = 0; i < static_cast<int>(update.flow.graph().ops().size()); ++i) {
    if (update.flow.op(i).kind == update.op().kind) group.ops.push_back(i);
  }
  return group;
}

Candidates make_update(const GroupView& group, Shared& shared) {
  std::vector<UpdateChunk> chunks;
  for (const OpView& op : group.ops())
    op.kind() == OpKind::ema ? add_averaged(op, chunks) : add_optimized(group, op, chunks);
  const auto table = make_table(chunks);
  const OpView first = group.op();
  const auto [scalars, check] = guards_of(first.kind());
  if (first.kind() == OpKind::lars || first.kind() == OpKind::lamb)
    shared.need(chunks.size() * 2 * sizeof(float));
  Updates updates{.chunks = rows_of<UpdateChunk>(*table),
                  .count = static_cast<int>(chunks.size()),
                  .scalars = first.in<float>(scalars),
                  .check = first.in<float>(check)};
  return only([table, updates, rule = rule_of(first), &shared](cudaStream_t stream) mutable {
    updates.partials = reinterpret_cast<float*>(shared.work());
    update(updates, rule, stream);
  });
}

Candidates make_gradient_check(const GroupView& group, Shared& shared) {
  const OpView op = group.op();
  using Check = operands::GradientCheck;
  std::vector<UpdateChunk> chunks;
  std::vector<int> first{0};
  for (int i = Check::first_gradient; i < op.inputs(); ++i) {
    add_chunks({.g = op.in(i), .g_type = type_of(op.in_tensor(i).dtype)}, op.in_stored(i), chunks);
    first.push_back(static_cast<int>(chunks.size()));
  }
  const auto table = make_table(chunks);
  const auto starts = make_table(first);
  GradientCheck args{.chunks = rows_of<UpdateChunk>(*table),
                     .count = static_cast<int>(chunks.size()),
                     .first = rows_of<int>(*starts),
                     .tensors = static_cast<int>(first.size()) - 1,
                     .attr = op.attr<graph::ScaleAttr>(),
                     .scalars = op.in<float>(Check::scalars),
                     .check = op.out<float>(Check::check),
                     .squares = op.out<float>(Check::squares),
                     .loss_scale = op.out<float>(Check::new_loss_scale),
                     .good_steps = op.out<float>(Check::new_good_steps),
                     .skipped_steps = op.out<float>(Check::new_skipped_steps)};
  shared.need(chunks.size() * sizeof(float));
  return only([table, starts, args, &shared](cudaStream_t stream) mutable {
    args.partials = reinterpret_cast<float*>(shared.work());
    gradient_check(args, stream);
  });
}

Candidates make_snapshot(const GroupView& group, Shared&) {
  return copies(group.op(), group.op().in<float>(operands::Snapshot::scalars) + graph::kAccumulateKeep);
}

Candidates make_restore(const GroupView& group, Shared&) {
  return copies(group.op(), group.op().in<float>(operands::Restore::check) + graph::kFinite);
}

}  // namespace redline::backend::cuda
