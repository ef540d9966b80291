// Steps made of own kernels: norms, pools, flat ops, the image input and the loss.
#include <initializer_list>

#include "backend/cuda/step.h"

namespace redline::backend::cuda {
namespace {

using graph::OpKind;

Matrix matrix_of(const graph::Tensor& t) {
  return {t.shape.n() * t.shape.h() * t.shape.w(), static_cast<int>(t.shape.c())};
}

void need_reduce(Shared& shared, const Matrix& m, Type type) {
  shared.need(reduce_partials(m, type) * sizeof(float));
}

// Sums of this rank to their means over all; nothing where a norm has no peers.
void average(const Nccl* peers, std::initializer_list<float*> sums, int count, cudaStream_t stream) {
  if (peers == nullptr) return;
  std::vector<ReduceRange> ranges;
  for (float* values : sums)
    ranges.push_back(
        {reinterpret_cast<std::byte*>(values), static_cast<std::size_t>(count), graph::DType::f32});
  peers->all_reduce(ranges, Reduce::average, stream);
}

// The norm of an op that nobody gave sums: in training a pass for the mean and one for the rest.
Step make_own_norm(const OpView& op, float* affine, Shared& shared) {
  const Matrix m = matrix_of(op.in_tensor(0));
  const Type type = type_of(op.in_tensor(0).dtype);
  auto space = std::make_shared<DeviceMemory>(static_cast<std::size_t>(4 * m.channels) * sizeof(float));
  auto* rough = reinterpret_cast<float*>(space->data());
  float* sums = rough + 2 * m.channels;
  NormFinalize finalize = norm_finalize_of(op, sums, affine, shared);
  finalize.rough = rough;
  need_reduce(shared, m, type);
  const Nccl* peers = shared.peers_of(op.attr<graph::NormAttr>());
  return [=, y = op.in(0), &shared](cudaStream_t stream) {
    if (finalize.training) {
      channel_sums(type, m, y, nullptr, rough, shared.reduce_space(), stream);
      average(peers, {rough}, 2 * m.channels, stream);
      channel_sums(type, m, y, rough, sums, shared.reduce_space(), stream);
      average(peers, {sums}, 2 * m.channels, stream);
    }
    norm_finalize(finalize, stream);
    static_cast<void>(space);  // lives as long as the step
  };
}

Step make_norm_stats(const OpView& op, Shared& shared) {
  if (op.in(5) == nullptr) return make_own_norm(op, op.out<float>(0), shared);
  const NormFinalize finalize = norm_finalize_of(op, op.in<float>(5), op.out<float>(0), shared);
  return [finalize](cudaStream_t stream) { norm_finalize(finalize, stream); };
}

Step make_batch_norm(const OpView& op, Shared& shared) {
  const Matrix m = matrix_of(op.in_tensor(0));
  auto affine = std::make_shared<DeviceMemory>(static_cast<std::size_t>(2 * m.channels) * sizeof(float));
  const Step norm = make_own_norm(op, reinterpret_cast<float*>(affine->data()), shared);
  return [=, y = op.in(0), z = op.out(0), type = type_of(op.in_tensor(0).dtype)](cudaStream_t stream) {
    norm(stream);
    const auto* scales = reinterpret_cast<const float*>(affine->data());
    affine_act(type, m, {y, scales, nullptr, nullptr, false, z, nullptr}, stream);
  };
}

Step make_norm_grad_stats(const OpView& op, Shared& shared) {
  const Matrix m = matrix_of(op.in_tensor(2));
  const Type type = type_of(op.in_tensor(2).dtype);
  const NormGradStats stats = norm_grad_stats_of(op);
  need_reduce(shared, m, type);
  return
      [=, &shared](cudaStream_t stream) { norm_grad_stats(type, m, stats, shared.reduce_space(), stream); };
}

Step make_norm_grad_apply(const OpView& op) {
  const NormGradApply apply = norm_grad_apply_of(op);
  return [apply, m = matrix_of(op.in_tensor(1)), type = type_of(op.in_tensor(1).dtype)](cudaStream_t stream) {
    norm_grad_apply(type, m, apply, stream);
  };
}

Step make_batch_norm_grad(const OpView& op, Shared& shared) {
  const Matrix m = matrix_of(op.in_tensor(1));
  const Type type = type_of(op.in_tensor(1).dtype);
  const NormGradStats stats{op.in(0),        nullptr,          op.in(1),         {},
                            op.in<float>(3), op.out<float>(1), op.out<float>(2), nullptr};
  const NormGradApply apply{op.in(0),         op.in(1),         {},       op.in<float>(3), op.in<float>(2),
                            op.out<float>(1), op.out<float>(2), op.out(0)};
  const Nccl* peers = shared.peers_of(op.attr<graph::NormAttr>());
  need_reduce(shared, m, type);
  return [=, &shared](cudaStream_t stream) {
    norm_grad_stats(type, m, stats, shared.reduce_space(), stream);
    average(peers, {stats.dgamma, stats.dbeta}, m.channels, stream);
    norm_grad_apply(type, m, apply, stream);
  };
}

Step make_max_pool(const OpView& op) {
  const Pool pool = pool_of(op.in_tensor(0).shape, op.out_tensor(0).shape, op.attr<graph::PoolAttr>());
  return [pool, type = type_of(op.in_tensor(0).dtype), x = op.in(0),
          affine = op.kind() == OpKind::affine_pool ? op.in<float>(1) : nullptr, y = op.out(0),
          index = op.out<std::uint8_t>(1), picked = op.out(2)](cudaStream_t stream) {
    max_pool(type, pool, x, affine, y, index, picked, stream);
  };
}

Step make_max_pool_grad(const OpView& op) {
  const Pool pool = pool_of(op.out_tensor(0).shape, op.in_tensor(0).shape, op.attr<graph::PoolAttr>());
  return [pool, type = type_of(op.out_tensor(0).dtype), dy = op.in(0), index = op.in<std::uint8_t>(1),
          dx = op.out(0)](cudaStream_t stream) { max_pool_grad(type, pool, dy, index, dx, stream); };
}

Step make_avg_pool(const OpView& op, bool gradient) {
  const graph::Tensor& plane = gradient ? op.out_tensor(0) : op.in_tensor(0);
  const int images = static_cast<int>(plane.shape.n()), channels = static_cast<int>(plane.shape.c());
  const int pixels = static_cast<int>(plane.shape.h() * plane.shape.w());
  return [=, type = type_of(plane.dtype), from = op.in(0), to = op.out(0)](cudaStream_t stream) {
    (gradient ? avg_pool_grad : avg_pool)(type, images, pixels, channels, from, to, stream);
  };
}

Step make_normalize(const OpView& op) {
  const graph::Tensor &images = op.in_tensor(0), &x = op.out_tensor(0);
  const Type type = type_of(x.dtype);
  const Images shape{x.shape.n(), static_cast<int>(x.shape.h()), static_cast<int>(x.shape.w()),
                     op.out_layout(0) == plan::Layout::folded};
  if (images.dtype == graph::DType::f32) {
    return [=, from = op.in<float>(0), to = op.out(0)](cudaStream_t stream) {
      pack_image(type, shape, from, to, stream);
    };
  }
  const auto& attr = op.attr<graph::NormalizeAttr>();
  ImageNormalize args{};
  for (int c = 0; c < 3; ++c) {
    args.scale[c] = 1.0F / (255.0F * attr.std[c]);
    args.bias[c] = -attr.mean[c] / attr.std[c];
  }
  return [=, from = op.in<std::uint8_t>(0), to = op.out(0)](cudaStream_t stream) {
    normalize_image(type, shape, args, from, to, stream);
  };
}

Step make_loss(const OpView& op, Shared& shared) {
  const graph::Shape& shape = op.in_tensor(0).shape;
  shared.need(static_cast<std::size_t>(shape[0]) * 4 * sizeof(float));
  const Type type = op.out(1) == nullptr ? Type::f32 : type_of(op.out_tensor(1).dtype);
  Loss loss{static_cast<int>(shape[0]),
            static_cast<int>(shape[1]),
            op.attr<graph::LossAttr>().smoothing,
            op.in<float>(0),
            op.in<std::int32_t>(1),
            op.in<float>(2),  // none: a loss scale of 1
            op.in<std::int32_t>(3),
            op.in<float>(4),
            nullptr,
            op.out<float>(0),
            op.out(1)};
  return [=, &shared](cudaStream_t stream) mutable {
    loss.row_results = reinterpret_cast<float*>(shared.work());
    softmax_cross_entropy(type, loss, stream);
  };
}

}  // namespace

Pool pool_of(const graph::Shape& in, const graph::Shape& out, const graph::PoolAttr& attr) {
  return {static_cast<int>(in.n()),
          static_cast<int>(in.c()),
          static_cast<int>(in.h()),
          static_cast<int>(in.w()),
          static_cast<int>(out.h()),
          static_cast<int>(out.w()),
          attr.kernel,
          attr.stride,
          attr.pad};
}

NormFinalize norm_finalize_of(const OpView& op, const float* sums, float* affine, const Shared& shared) {
  const auto& attr = op.attr<graph::NormAttr>();
  const Matrix m = matrix_of(op.in_tensor(0));
  const Nccl* peers = shared.peers_of(attr);
  const double all = static_cast<double>(m.rows) * (peers != nullptr ? peers->ranks() : 1);
  return {m.channels,
          1.0 / static_cast<double>(m.rows),
          all > 1.0 ? static_cast<float>(all / (all - 1.0)) : 1.0F,
          attr.epsilon,
          attr.momentum,
          attr.training,
          sums,
          op.in<float>(1),
          op.in<float>(2),
          op.in<float>(3),
          op.in<float>(4),
          affine,
          op.out<float>(1)};
}

Step make_affine_act(const OpView& op, const std::optional<NormFinalize>& finalize) {
  const AffineAct apply{
      op.in(0),  op.in<float>(1),        op.in(2), op.in<float>(3), op.attr<graph::ActAttr>().relu,
      op.out(0), op.out<std::uint8_t>(1)};
  return [=, m = matrix_of(op.in_tensor(0)), type = type_of(op.in_tensor(0).dtype)](cudaStream_t stream) {
    AffineAct args = apply;
    args.finalize = finalize ? &*finalize : nullptr;
    affine_act(type, m, args, stream);
  };
}

NormGradStats norm_grad_stats_of(const OpView& op) {
  return {op.in(0),        op.in(1),         op.in(2),         {op.in<float>(3), op.in<std::uint8_t>(4)},
          op.in<float>(5), op.out<float>(0), op.out<float>(1), op.out(2)};
}

NormGradApply norm_grad_apply_of(const OpView& op) {
  return {op.in(0),        op.in(1),        {op.in<float>(2), op.in<std::uint8_t>(3)},
          op.in<float>(4), op.in<float>(5), op.in<float>(6),
          op.in<float>(7), op.out(0)};
}

Step make_step(const OpView& op, Shared& shared) {
  switch (op.kind()) {
    case OpKind::normalize_image:
      return make_normalize(op);
    case OpKind::batch_norm:
      return make_batch_norm(op, shared);
    case OpKind::norm_stats:
      return make_norm_stats(op, shared);
    case OpKind::affine_act:
      return make_affine_act(op, std::nullopt);
    case OpKind::max_pool:
    case OpKind::affine_pool:
      return make_max_pool(op);
    case OpKind::avg_pool:
      return make_avg_pool(op, false);
    case OpKind::avg_pool_grad:
      return make_avg_pool(op, true);
    case OpKind::max_pool_grad:
      return make_max_pool_grad(op);
    case OpKind::batch_norm_grad:
      return make_batch_norm_grad(op, shared);
    case OpKind::norm_grad_stats:
      return make_norm_grad_stats(op, shared);
    case OpKind::norm_grad_apply:
      return make_norm_grad_apply(op);
    case OpKind::softmax_cross_entropy:
      return make_loss(op, shared);
    case OpKind::relu:
      return [type = type_of(op.in_tensor(0).dtype), n = op.out_stored(0), x = op.in(0),
              y = op.out(0)](cudaStream_t stream) { relu(type, n, x, y, stream); };
    case OpKind::relu_grad:
      return [type = type_of(op.in_tensor(0).dtype), n = op.out_stored(0), dy = op.in(0), y = op.in(1),
              dx = op.out(0)](cudaStream_t stream) { relu_grad(type, n, dy, y, dx, stream); };
    case OpKind::add:
      return [type = type_of(op.in_tensor(0).dtype), n = op.out_stored(0), a = op.in(0), b = op.in(1),
              y = op.out(0)](cudaStream_t stream) { add(type, n, a, b, y, stream); };
    case OpKind::accumulate:
      return [type = type_of(op.in_tensor(1).dtype), n = op.in_stored(0), total = op.in<float>(0),
              g = op.in(1), scalars = op.in<float>(2)](cudaStream_t stream) {
        accumulate(type, n, scalars, total, g, stream);
      };
    default:
      throw InternalError("the cuda backend has no step for {}", name_of(op.kind()));
  }
}

}  // namespace redline::backend::cuda
