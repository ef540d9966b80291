#include <initializer_list>
#include <memory>
#include <vector>

#include "backend/cuda/step.h"

namespace redline::backend::cuda {
namespace {

void need_reduce(Shared& shared, const Matrix& m, Type type) {
  shared.need(reduce_partials(m, type) * sizeof(float));
}

// Sums of this rank to their means over all; nothing where a norm has no peers.
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
  const Matrix m = matrix_of(op.in_tensor(In::y).shape);
  const Nccl* peers = shared.peers_of(attr);
  const double all = static_cast<double>(m.rows) * (peers != nullptr ? peers->ranks() : 1);
  NormFinalize args{};
  args.channels = m.channels;
  args.inverse_count = 1.0 / static_cast<double>(m.rows);
  args.unbiased = all > 1.0 ? static_cast<float>(all / (all - 1.0)) : 1.0F;
  args.epsilon = attr.epsilon;
  args.momentum = attr.momentum;
  args.training = attr.training;
  args.sums = sums;
  args.gamma = op.in<float>(In::gamma);
  args.beta = op.in<float>(In::beta);
  args.mean = op.in<float>(In::mean);
  args.var = op.in<float>(In::var);
  args.affine = affine;
  args.saved = op.out<float>(In::saved);
  return args;
}

// The norm of an op that nobody gave sums: in training a pass for the mean and one for the rest.
Step own_norm(const OpView& op, float* affine, Shared& shared) {
  const graph::Tensor& y = op.in_tensor(operands::NormStats::y);
  const Matrix m = matrix_of(y.shape);
  const Type type = type_of(y.dtype);
  auto space = std::make_shared<DeviceMemory>(static_cast<std::size_t>(4 * m.channels) * sizeof(float));
  auto* rough = reinterpret_cast<float*>(space->data());
  float* sums = rough + 2 * m.channels;
  NormFinalize finalize = finalize_of(op, sums, affine, shared);
  finalize.rough = rough;
  need_reduce(shared, m, type);
  const Nccl* peers = shared.peers_of(op.attr<graph::NormAttr>());
  return [=, from = op.in(operands::NormStats::y), &shared](cudaStream_t stream) {
    if (finalize.training) {
      channel_sums(type, m, from, nullptr, rough, shared.reduce_space(), stream);
      average(peers, {rough}, 2 * m.channels, stream);
      channel_sums(type, m, from, rough, sums, shared.reduce_space(), stream);
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
  NormGradApply args{};
  args.g = op.in(Apply::g);
  args.y = op.in(Apply::y);
  args.gate = {op.in<float>(Apply::affine), op.in<std::uint8_t>(Apply::mask)};
  args.saved = op.in<float>(Apply::saved);
  args.gamma = op.in<float>(Apply::gamma);
  args.dgamma = op.in<float>(Apply::dgamma);
  args.dbeta = op.in<float>(Apply::dbeta);
  args.dy = op.out(Apply::dy);
  return args;
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
  const graph::Tensor& x = op.in_tensor(BatchNorm::x);
  const Matrix m = matrix_of(x.shape);
  const auto affine =
      std::make_shared<DeviceMemory>(static_cast<std::size_t>(2 * m.channels) * sizeof(float));
  auto* scales = reinterpret_cast<float*>(affine->data());
  const AffineAct apply{.y = op.in(BatchNorm::x), .affine = scales, .z = op.out(BatchNorm::y)};
  return only([=, norm = own_norm(op, scales, shared), type = type_of(x.dtype)](cudaStream_t stream) {
    norm(stream);
    affine_act(type, m, apply, stream);
    static_cast<void>(affine);  // lives as long as the step
  });
}

// With norm_stats in the group, its scale and bias are worked out there too.
Candidates make_affine_act(const GroupView& group, Shared& shared) {
  using Act = operands::AffineAct;
  const OpView op = group.op(OpKind::affine_act);
  std::optional<NormFinalize> finalize;
  if (group.has(OpKind::norm_stats)) finalize = norm_finalize_of(group.op(OpKind::norm_stats), shared);
  AffineAct apply{};
  apply.y = op.in(Act::y);
  apply.affine = op.in<float>(Act::affine);
  apply.shortcut = op.in(Act::shortcut);
  apply.shortcut_affine = op.in<float>(Act::shortcut_affine);
  apply.relu = op.attr<graph::ActAttr>().relu;
  apply.z = op.out(Act::z);
  apply.mask = op.out<std::uint8_t>(Act::mask);
  const graph::Tensor& y = op.in_tensor(Act::y);
  return only([=, m = matrix_of(y.shape), type = type_of(y.dtype)](cudaStream_t stream) mutable {
    apply.finalize = finalize ? &*finalize : nullptr;
    affine_act(type, m, apply, stream);
  });
}

Candidates make_norm_grad_stats(const GroupView& group, Shared& shared) {
  using Stats = operands::NormGradStats;
  const OpView op = group.op();
  const Matrix m = matrix_of(op.in_tensor(Stats::y).shape);
  const Type type = type_of(op.in_tensor(Stats::y).dtype);
  NormGradStats args{};
  args.g = op.in(Stats::g);
  args.g2 = op.in(Stats::g2);
  args.y = op.in(Stats::y);
  args.gate = {op.in<float>(Stats::affine), op.in<std::uint8_t>(Stats::mask)};
  args.saved = op.in<float>(Stats::saved);
  args.dgamma = op.out<float>(Stats::dgamma);
  args.dbeta = op.out<float>(Stats::dbeta);
  args.masked = op.out(Stats::masked);
  need_reduce(shared, m, type);
  return only(
      [=, &shared](cudaStream_t stream) { norm_grad_stats(type, m, args, shared.reduce_space(), stream); });
}

Candidates make_norm_grad_apply(const GroupView& group, Shared&) {
  const OpView op = group.op();
  const graph::Tensor& y = op.in_tensor(operands::NormGradApply::y);
  return only(norm_grad_apply, type_of(y.dtype), matrix_of(y.shape), norm_grad_apply_of(op));
}

Candidates make_batch_norm_grad(const GroupView& group, Shared& shared) {
  using Grad = operands::BatchNormGrad;
  const OpView op = group.op();
  const Matrix m = matrix_of(op.in_tensor(Grad::x).shape);
  const Type type = type_of(op.in_tensor(Grad::x).dtype);
  const NormGradStats stats{.g = op.in(Grad::dy),
                            .y = op.in(Grad::x),
                            .saved = op.in<float>(Grad::saved),
                            .dgamma = op.out<float>(Grad::dgamma),
                            .dbeta = op.out<float>(Grad::dbeta)};
  const NormGradApply apply{
      stats.g,     stats.y,         {}, stats.saved, op.in<float>(Grad::gamma), stats.dgamma,
      stats.dbeta, op.out(Grad::dx)};
  const Nccl* peers = shared.peers_of(op.attr<graph::NormAttr>());
  need_reduce(shared, m, type);
  return only([=, &shared](cudaStream_t stream) {
    norm_grad_stats(type, m, stats, shared.reduce_space(), stream);
    average(peers, {stats.dgamma, stats.dbeta}, m.channels, stream);
    norm_grad_apply(type, m, apply, stream);
  });
}

}  // namespace redline::backend::cuda
