#include <initializer_list>
#include <memory>
#include <vector>

#include "backend/cuda/conv_groups.h"
#include "backend/cuda/groups.h"

namespace redline::backend::cuda {
namespace {

void need_reduce(Shared& shared, const Matrix& m) { shared.need(reduce_partials(m) * sizeof(float)); }

// Replaces this rank's sums by their means over all ranks. Does nothing without peers.
void average(const Nccl* peers, std::initializer_list<float*> sums, int count, cudaStream_t stream) {
  if (peers == nullptr) return;
  std::vector<ReduceRange> ranges;
  for (float* values : sums)
    ranges.push_back({reinterpret_cast<std::byte*>(values), static_cast<std::size_t>(count), DType::f32});
  peers->all_reduce(ranges, Reduce::average, stream);
}

// `sums` are this rank's, or their mean over the ranks that the norm takes together. norm_stats and
// batch_norm have the same inputs up to there.
NormFinalize finalize_of(const OpView& op, const float* sums, float* affine, const Shared& shared) {
  using In = operands::NormStats;
  const auto& attr = op.attr<graph::NormAttr>();
  const Matrix m = matrix_of(op.in_tensor(In::y));
  const Nccl* peers = shared.peers_of(attr);
  const double all = static_cast<double>(m.rows) * (peers != nullptr ? peers->ranks() : 1);
  return {.channels = m.channels,
          .inverse_count = 1.0 / static_cast<double>(m.rows),
          .unbiased = all > 1.0 ? static_cast<float>(all / (all - 1.0)) : 1.0F,
          .epsilon = attr.epsilon,
          .momentum = attr.momentum,
          .training = attr.training,
          .sums = sums,
          .gamma = op.in<float>(In::gamma),
          .beta = op.in<float>(In::beta),
          .mean = op.in<float>(In::mean),
          .var = op.in<float>(In::var),
          .affine = affine,
          .saved = op.out<float>(In::saved)};
}

// A norm without precomputed sums: in training one pass for the mean, and one for the variance.
Step own_norm(const OpView& op, float* affine, Shared& shared) {
  const Matrix m = matrix_of(op.in_tensor(operands::NormStats::y));
  auto space = std::make_shared<DeviceMemory>(static_cast<std::size_t>(4 * m.channels) * sizeof(float));
  auto* rough = reinterpret_cast<float*>(space->data());
  float* sums = rough + 2 * m.channels;
  NormFinalize finalize = finalize_of(op, sums, affine, shared);
  finalize.rough = rough;
  need_reduce(shared, m);
  const Nccl* peers = shared.peers_of(op.attr<graph::NormAttr>());
  return [=, from = op.in(operands::NormStats::y), &shared](cudaStream_t stream) {
    if (finalize.training) {
      channel_sums(m, from, nullptr, rough, shared.reduce_space(), stream);
      average(peers, {rough}, 2 * m.channels, stream);
      channel_sums(m, from, rough, sums, shared.reduce_space(), stream);
      average(peers, {sums}, 2 * m.channels, stream);
    }
    norm_finalize(finalize, stream);
    static_cast<void>(space);  // lives as long as the step
  };
}

}  // namespace

NormFinalize norm_finalize_of(const OpView& norm, const Shared& shared) {
  using operands::NormStats;
  return finalize_of(norm, norm.in<float>(NormStats::sums), norm.out<float>(NormStats::affine), shared);
}

NormGradApply norm_grad_apply_of(const OpView& op) {
  using Apply = operands::NormGradApply;
  return {.g = op.in(Apply::g),
          .y = op.in(Apply::y),
          .gate = {op.in<float>(Apply::affine), op.in<std::uint8_t>(Apply::mask)},
          .saved = op.in<float>(Apply::saved),
          .gamma = op.in<float>(Apply::gamma),
          .dgamma = op.in<float>(Apply::dgamma),
          .dbeta = op.in<float>(Apply::dbeta),
          .dy = op.out(Apply::dy)};
}

GatedNorm gated_norm_of(const OpView& stats) {
  using Stats = operands::NormGradStats;
  return {.y = stats.in(Stats::y),
          .gate = {stats.in<float>(Stats::affine), stats.in<std::uint8_t>(Stats::mask)},
          .saved = stats.in<float>(Stats::saved),
          .dbeta = stats.out<float>(Stats::dbeta),
          .dgamma = stats.out<float>(Stats::dgamma)};
}

Candidates make_norm_stats(const GroupView& group, Shared& shared) {
  using operands::NormStats;
  const OpView op = group.op();
  if (op.in(NormStats::sums) == nullptr) return only(own_norm(op, op.out<float>(NormStats::affine), shared));
  return only(norm_finalize, norm_finalize_of(op, shared));
}

Candidates make_batch_norm(const GroupView& group, Shared& shared) {
  using operands::BatchNorm;
  const OpView op = group.op();
  const Matrix m = matrix_of(op.in_tensor(BatchNorm::x));
  const auto affine =
      std::make_shared<DeviceMemory>(static_cast<std::size_t>(2 * m.channels) * sizeof(float));
  auto* scales = reinterpret_cast<float*>(affine->data());
  const AffineAct apply{.y = op.in(BatchNorm::x), .affine = scales, .z = op.out(BatchNorm::y)};
  return only([=, norm = own_norm(op, scales, shared)](cudaStream_t stream) {
    norm(stream);
    affine_act(m, apply, stream);
    static_cast<void>(affine);  // lives as long as the step
  });
}

// A norm whose scale and bias are computed where they are applied: norm_stats, affine_act.
plan::Group match_norm_act(const plan::Node& act) {
  using Act = operands::AffineAct;
  const plan::Node norm = act.is(OpKind::affine_act) ? norm_of(act) : plan::Node{act.flow};
  if (!norm) return {};
  const graph::TensorId z = act.out(Act::z);
  return {.ops = {norm.position, act.position},
          .in_place = {{act.in(Act::y), z}, {act.in(Act::shortcut), z}}};
}

// With norm_stats in the group, the kernel also computes its scale and bias.
Candidates make_affine_act(const GroupView& group, Shared& shared) {
  using Act = operands::AffineAct;
  const OpView op = group.op(OpKind::affine_act);
  AffineAct apply{.y = op.in(Act::y),
                  .affine = op.in<float>(Act::affine),
                  .shortcut = op.in(Act::shortcut),
                  .shortcut_affine = op.in<float>(Act::shortcut_affine),
                  .relu = op.attr<graph::ActAttr>().relu,
                  .z = op.out(Act::z),
                  .mask = op.out<std::uint8_t>(Act::mask),
                  .finalizes = group.has(OpKind::norm_stats)};
  if (apply.finalizes) apply.norm = norm_finalize_of(group.op(OpKind::norm_stats), shared);
  return only(affine_act, matrix_of(op.in_tensor(Act::y)), apply);
}

Candidates make_norm_grad_stats(const GroupView& group, Shared& shared) {
  using Stats = operands::NormGradStats;
  const OpView op = group.op();
  const Matrix m = matrix_of(op.in_tensor(Stats::y));
  const NormGradStats args{op.in(Stats::g), op.in(Stats::g2), gated_norm_of(op), op.out(Stats::masked)};
  need_reduce(shared, m);
  return only([=, &shared](cudaStream_t stream) { norm_grad_stats(m, args, shared.reduce_space(), stream); });
}

Candidates make_norm_grad_apply(const GroupView& group, Shared&) {
  const OpView op = group.op();
  return only(norm_grad_apply, matrix_of(op.in_tensor(operands::NormGradApply::y)), norm_grad_apply_of(op));
}

Candidates make_batch_norm_grad(const GroupView& group, Shared& shared) {
  using Grad = operands::BatchNormGrad;
  const OpView op = group.op();
  const Matrix m = matrix_of(op.in_tensor(Grad::x));
  const GatedNorm norm{.y = op.in(Grad::x),
                       .saved = op.in<float>(Grad::saved),
                       .dbeta = op.out<float>(Grad::dbeta),
                       .dgamma = op.out<float>(Grad::dgamma)};
  const NormGradStats stats{.g = op.in(Grad::dy), .norm = norm};
  const NormGradApply apply{
      stats.g, norm.y, {}, norm.saved, op.in<float>(Grad::gamma), norm.dgamma, norm.dbeta, op.out(Grad::dx)};
  const Nccl* peers = shared.peers_of(op.attr<graph::NormAttr>());
  need_reduce(shared, m);
  return only([=, &shared](cudaStream_t stream) {
    norm_grad_stats(m, stats, shared.reduce_space(), stream);
    average(peers, {norm.dgamma, norm.dbeta}, m.channels, stream);
    norm_grad_apply(m, apply, stream);
  });
}

}  // namespace redline::backend::cuda
