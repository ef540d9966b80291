// Batch norm around the pending affine, channels-last.
#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {
namespace {

enum class Shortcut { none, plain, affine };

// Ors the bits of neighbouring threads into bytes and writes them; bit k belongs to the k-th element.
template <int N>
__device__ __forceinline__ void store_mask(std::uint8_t* mask, std::int64_t vector, unsigned bits,
                                           bool valid) {
  if constexpr (N == 8) {
    if (valid) mask[vector] = static_cast<std::uint8_t>(bits);
  } else {
    constexpr int kThreadsPerByte = 8 / N;
    bits <<= (threadIdx.x % kThreadsPerByte) * N;
    for (int offset = 1; offset < kThreadsPerByte; offset <<= 1) bits |= __shfl_xor_sync(~0U, bits, offset);
    if (valid && threadIdx.x % kThreadsPerByte == 0)
      mask[vector / kThreadsPerByte] = static_cast<std::uint8_t>(bits);
  }
}

template <int N>
__device__ __forceinline__ unsigned load_mask(const std::uint8_t* mask, std::int64_t vector) {
  if constexpr (N == 8) return mask[vector];
  return mask[vector * N / 8] >> (vector * N % 8);
}

// The scale and bias of a vector's channels, read or worked out; the first threads to do so write
// the latter down.
template <int N, bool kFinalize>
__device__ __forceinline__ PerChannel<N, 2> pending_affine(const AffineAct& args, const NormFinalize& norm,
                                                           int channel, int channels) {
  const bool keeps =
      PerChannel<N, 2>::shared_by_block(channels)
          ? blockIdx.x == 0
          : std::int64_t{blockIdx.x} * kThreads + threadIdx.x < static_cast<std::int64_t>(channels / N);
  return PerChannel<N, 2>(channel, channels, [&](int c) {
    if constexpr (!kFinalize) {
      return typename PerChannel<N, 2>::Values{{args.affine[c], args.affine[channels + c]}};
    } else {
      const ChannelNorm found = norm_of(norm, c);
      if (keeps) keep(norm, c, found);
      return typename PerChannel<N, 2>::Values{{found.scale, found.bias}};
    }
  });
}

template <typename T, int N, Shortcut kShortcut, bool kRelu, bool kMask, bool kFinalize>
__global__ void __launch_bounds__(kThreads)
    affine_act_kernel(std::int64_t vectors, int row_vectors, AffineAct args, NormFinalize norm) {
  begin_kernel();
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int channel = static_cast<int>(first % row_vectors) * N, channels = row_vectors * N;
  const PerChannel<N, 2> own = pending_affine<N, kFinalize>(args, norm, channel, channels);
  const bool two = kShortcut == Shortcut::affine;
  const Lanes<N> other_scale(two ? args.shortcut_affine : nullptr, channel),
      other_bias(two ? args.shortcut_affine + channels : nullptr, channel);
  // Whole warps stay in the loop together: mask bytes are made of several threads' bits.
  for (std::int64_t base = first; base - threadIdx.x % 32 < vectors; base += stride * kUnroll) {
    Vec<T, N> y[kUnroll], s[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t i = base + u * stride;
      if (i < vectors) {
        y[u] = load<T, N>(args.y, i);
        if constexpr (kShortcut != Shortcut::none) s[u] = load<T, N>(args.shortcut, i);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t i = base + u * stride;
      unsigned bits = 0;
      Vec<T, N> z;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        float value = fmaf(y[u].at(k), own.v[0][k], own.v[1][k]);
        if constexpr (kShortcut == Shortcut::plain) value += s[u].at(k);
        if constexpr (kShortcut == Shortcut::affine) value += fmaf(s[u].at(k), other_scale[k], other_bias[k]);
        if constexpr (kMask) bits |= (value > 0.0F ? 1U : 0U) << k;
        if constexpr (kRelu) value = value < 0.0F ? 0.0F : value;
        z.set(k, value);
      }
      if (i < vectors) store<T, N>(args.z, i, z);
      if constexpr (kMask) store_mask<N>(args.mask, i, bits, i < vectors);
    }
  }
}

template <typename T, int N, Shortcut kShortcut, bool kFinalize>
void launch_affine_act(const Matrix& m, const AffineAct& args, cudaStream_t stream) {
  const int row_vectors = m.channels / N;
  const std::int64_t vectors = m.rows * row_vectors;
  const int grid = grid_for(vectors, row_vectors, kUnroll);
  const NormFinalize norm = kFinalize ? *args.finalize : NormFinalize{};
  const auto run = [&](auto kernel) {
    launch(kernel, {static_cast<unsigned>(grid), kThreads, 0, is_small(vectors)}, stream, vectors,
           row_vectors, args, norm);
  };
  if (args.mask != nullptr) {
    run(affine_act_kernel<T, N, kShortcut, true, true, kFinalize>);
  } else if (args.relu) {
    run(affine_act_kernel<T, N, kShortcut, true, false, kFinalize>);
  } else {
    run(affine_act_kernel<T, N, kShortcut, false, false, kFinalize>);
  }
}

enum class GateKind { none, affine, mask };

GateKind kind_of(const Gate& gate) {
  return gate.mask != nullptr ? GateKind::mask : gate.affine != nullptr ? GateKind::affine : GateKind::none;
}

// Calls body.template operator()<kind>().
template <typename Body>
void dispatch_gate(const Gate& gate, const Body& body) {
  switch (kind_of(gate)) {
    case GateKind::none:
      return body.template operator()<GateKind::none>();
    case GateKind::affine:
      return body.template operator()<GateKind::affine>();
    case GateKind::mask:
      return body.template operator()<GateKind::mask>();
  }
}

template <typename T, int N, GateKind kGate>
__global__ void __launch_bounds__(kThreads)
    grad_apply_kernel(std::int64_t vectors, int row_vectors, float per_channel, NormGradApply args) {
  begin_kernel();
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int channel = static_cast<int>(first % row_vectors) * N, channels = row_vectors * N;
  const NormSlope<N> slope(args, channel, channels, per_channel);
  const float* affine = kGate == GateKind::affine ? args.gate.affine : nullptr;
  const Lanes<N> scale(affine, channel), bias(affine == nullptr ? nullptr : affine + channels, channel);
  for (std::int64_t base = first; base < vectors; base += stride * kUnroll) {
    Vec<T, N> g[kUnroll], y[kUnroll];
    unsigned bits[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t i = base + u * stride;
      if (i >= vectors) break;
      g[u] = load<T, N>(args.g, i);
      y[u] = load<T, N>(args.y, i);
      if constexpr (kGate == GateKind::mask) bits[u] = load_mask<N>(args.gate.mask, i);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t i = base + u * stride;
      if (i >= vectors) break;
      Vec<T, N> dy;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        float gradient = g[u].at(k);
        const float value = y[u].at(k);
        if constexpr (kGate == GateKind::affine)
          gradient = fmaf(value, scale[k], bias[k]) > 0.0F ? gradient : 0.0F;
        if constexpr (kGate == GateKind::mask) gradient = (bits[u] >> k & 1U) != 0U ? gradient : 0.0F;
        dy.set(k, slope.at(k, gradient, value));
      }
      store<T, N>(args.dy, i, dy);
    }
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    channel_sums_kernel(std::int64_t rows, int row_vectors, const void* y, const float* rough, float* sums,
                        ReduceSpace space) {
  begin_kernel();
  constexpr int kDeep = 2 * kUnroll;  // one array only
  const int vector = static_cast<int>(blockIdx.x) * kTileVectors + threadIdx.x % kTileVectors;
  const std::int64_t stride = std::int64_t{gridDim.y} * kTileRows;
  float sum[N] = {}, squares[N] = {};
  if (vector < row_vectors) {
    const Lanes<N> first_sums(rough, vector * N);
    const float inverse = 1.0F / static_cast<float>(rows);
    for (std::int64_t r = std::int64_t{blockIdx.y} * kTileRows + threadIdx.x / kTileVectors; r < rows;
         r += stride * kDeep) {
      Vec<T, N> values[kDeep];
#pragma unroll
      for (int u = 0; u < kDeep; ++u) {
        if (r + u * stride < rows) values[u] = load<T, N>(y, (r + u * stride) * row_vectors + vector);
      }
#pragma unroll
      for (int u = 0; u < kDeep; ++u) {
        if (r + u * stride >= rows) break;
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const float value = values[u].at(k) - first_sums[k] * inverse;
          sum[k] += value;
          squares[k] = fmaf(value, value, squares[k]);
        }
      }
    }
  }
  constexpr int kTile = kTileVectors * N;
  __shared__ float totals[2 * kTile];
  if (!sum_over_block<N>(sum, squares, space, totals)) return;
  const int channels = row_vectors * N;
  for (int i = threadIdx.x; i < 2 * kTile; i += kThreads) {
    const int channel = static_cast<int>(blockIdx.x) * kTile + i % kTile;
    if (channel < channels) sums[i / kTile * channels + channel] = totals[i];
  }
}

template <typename T, int N, GateKind kGate, bool kTwo, bool kMasked>
__global__ void __launch_bounds__(kThreads, kReduceBlocksEach)
    grad_stats_kernel(std::int64_t rows, int row_vectors, NormGradStats args, ReduceSpace space) {
  begin_kernel();
  const int vector = static_cast<int>(blockIdx.x) * kTileVectors + threadIdx.x % kTileVectors;
  const int channels = row_vectors * N;
  const std::int64_t stride = std::int64_t{gridDim.y} * kTileRows;
  float sum[N] = {}, dot[N] = {};
  if (vector < row_vectors) {
    const Lanes<N> mean(args.saved, vector * N);
    const float* affine = kGate == GateKind::affine ? args.gate.affine : nullptr;
    const Lanes<N> scale(affine, vector * N),
        bias(affine == nullptr ? nullptr : affine + channels, vector * N);
    for (std::int64_t r = std::int64_t{blockIdx.y} * kTileRows + threadIdx.x / kTileVectors; r < rows;
         r += stride * kUnroll) {
      Vec<T, N> g[kUnroll], g2[kUnroll], y[kUnroll];
      unsigned bits[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (r + u * stride >= rows) break;
        const std::int64_t i = (r + u * stride) * row_vectors + vector;
        g[u] = load<T, N>(args.g, i);
        if constexpr (kTwo) g2[u] = load<T, N>(args.g2, i);
        y[u] = load<T, N>(args.y, i);
        if constexpr (kGate == GateKind::mask) bits[u] = load_mask<N>(args.gate.mask, i);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (r + u * stride >= rows) break;
        Vec<T, N> masked;
#pragma unroll
        for (int k = 0; k < N; ++k) {
          float gradient = g[u].at(k);
          if constexpr (kTwo) gradient += g2[u].at(k);
          const float value = y[u].at(k);
          if constexpr (kGate == GateKind::affine)
            gradient = fmaf(value, scale[k], bias[k]) > 0.0F ? gradient : 0.0F;
          if constexpr (kGate == GateKind::mask) gradient = (bits[u] >> k & 1U) != 0U ? gradient : 0.0F;
          if constexpr (kMasked) masked.set(k, gradient);
          sum[k] += gradient;
          dot[k] = fmaf(gradient, value - mean[k], dot[k]);
        }
        if constexpr (kMasked) store<T, N>(args.masked, (r + u * stride) * row_vectors + vector, masked);
      }
    }
  }
  constexpr int kTile = kTileVectors * N;
  __shared__ float totals[2 * kTile];
  if (sum_over_block<N>(sum, dot, space, totals)) write_norm_gradients<N>(totals, channels, args);
}

__global__ void finalize_kernel(NormFinalize args) {
  begin_kernel();
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c < args.channels) keep(args, c, norm_of(args, c));
}

}  // namespace

std::size_t reduce_partials(const Matrix& m, Type type) {
  const int wide = type == Type::f32 ? 4 : 8;
  const int n = m.channels % wide == 0 ? wide : 1;
  const ReduceGrid grid(m, n);
  return static_cast<std::size_t>(grid.tiles) * static_cast<std::size_t>(grid.splits) * 2 * kTileVectors *
         static_cast<std::size_t>(n);
}

void channel_sums(Type type, Matrix m, const void* y, const float* rough, float* sums, ReduceSpace space,
                  cudaStream_t stream) {
  dispatch(type, m.channels, [&]<typename T, int N>() {
    const ReduceGrid grid(m, N);
    launch(channel_sums_kernel<T, N>, {grid.blocks()}, stream, m.rows, m.channels / N, y, rough, sums, space);
  });
}

void norm_finalize(const NormFinalize& args, cudaStream_t stream) {
  launch(finalize_kernel, {static_cast<unsigned>(divide_up(args.channels, 64)), 64, 0, true}, stream, args);
}

void affine_act(Type type, Matrix m, const AffineAct& args, cudaStream_t stream) {
  dispatch(type, m.channels, [&]<typename T, int N>() {
    const auto run = [&]<bool kFinalize>() {
      if (args.shortcut == nullptr)
        return launch_affine_act<T, N, Shortcut::none, kFinalize>(m, args, stream);
      if (args.shortcut_affine == nullptr)
        return launch_affine_act<T, N, Shortcut::plain, kFinalize>(m, args, stream);
      launch_affine_act<T, N, Shortcut::affine, kFinalize>(m, args, stream);
    };
    args.finalize != nullptr ? run.template operator()<true>() : run.template operator()<false>();
  });
}

void norm_grad_stats(Type type, Matrix m, const NormGradStats& args, ReduceSpace space, cudaStream_t stream) {
  dispatch(type, m.channels, [&]<typename T, int N>() {
    const ReduceGrid grid(m, N);
    const dim3 blocks = grid.blocks();
    const int row_vectors = m.channels / N;
    const auto run = [&](auto kernel) {
      launch(kernel, {blocks, kThreads, 0, is_small(m.rows * row_vectors)}, stream, m.rows, row_vectors, args,
             space);
    };
    dispatch_gate(args.gate, [&]<GateKind kGate>() {
      if (args.g2 != nullptr && args.masked != nullptr) {
        run(grad_stats_kernel<T, N, kGate, true, true>);
      } else if (args.g2 != nullptr) {
        run(grad_stats_kernel<T, N, kGate, true, false>);
      } else if (args.masked != nullptr) {
        run(grad_stats_kernel<T, N, kGate, false, true>);
      } else {
        run(grad_stats_kernel<T, N, kGate, false, false>);
      }
    });
  });
}

void norm_grad_apply(Type type, Matrix m, const NormGradApply& args, cudaStream_t stream) {
  dispatch(type, m.channels, [&]<typename T, int N>() {
    const int row_vectors = m.channels / N;
    const std::int64_t vectors = m.rows * row_vectors;
    const int grid = grid_for(vectors, row_vectors, kUnroll);
    dispatch_gate(args.gate, [&]<GateKind kGate>() {
      launch(grad_apply_kernel<T, N, kGate>, {static_cast<unsigned>(grid), kThreads, 0, is_small(vectors)},
             stream, vectors, row_vectors, static_cast<float>(m.rows), args);
    });
  });
}

}  // namespace redline::backend::cuda
