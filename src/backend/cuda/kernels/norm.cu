// Batch norm around the pending affine, channels-last.
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {
namespace {

constexpr int kUnroll = 4;

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

template <typename T, int N, Shortcut kShortcut, bool kRelu, bool kMask>
__global__ void __launch_bounds__(kThreads)
    affine_act_kernel(std::int64_t vectors, int row_vectors, AffineAct args) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int channel = static_cast<int>(first % row_vectors) * N, channels = row_vectors * N;
  const Lanes<N> scale(args.affine, channel), bias(args.affine + channels, channel);
  const float* other = kShortcut == Shortcut::affine ? args.shortcut_affine : args.affine;
  const Lanes<N> other_scale(other, channel), other_bias(other + channels, channel);
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
        float value = fmaf(y[u].at(k), scale[k], bias[k]);
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

template <typename T, int N, Shortcut kShortcut>
void launch_affine_act(const Matrix& m, const AffineAct& args, cudaStream_t stream) {
  const int row_vectors = m.channels / N;
  const std::int64_t vectors = m.rows * row_vectors;
  const int grid = grid_for(vectors, row_vectors, kUnroll);
  if (args.mask != nullptr) {
    affine_act_kernel<T, N, kShortcut, true, true><<<grid, kThreads, 0, stream>>>(vectors, row_vectors, args);
  } else if (args.relu) {
    affine_act_kernel<T, N, kShortcut, true, false>
        <<<grid, kThreads, 0, stream>>>(vectors, row_vectors, args);
  } else {
    affine_act_kernel<T, N, kShortcut, false, false>
        <<<grid, kThreads, 0, stream>>>(vectors, row_vectors, args);
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

// dy = a * gated g + b * y + c
template <typename T, int N, GateKind kGate>
__global__ void __launch_bounds__(kThreads)
    grad_apply_kernel(std::int64_t vectors, int row_vectors, float per_channel, NormGradApply args) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int channel = static_cast<int>(first % row_vectors) * N, channels = row_vectors * N;
  float a[N], b[N], c[N], scale[N], bias[N];
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int at = channel + k;
    const float inverse = args.saved[channels + at];
    a[k] = args.gamma[at] * inverse;
    b[k] = -a[k] * inverse * args.dgamma[at] / per_channel;
    c[k] = -a[k] * args.dbeta[at] / per_channel - b[k] * args.saved[at];
    if constexpr (kGate == GateKind::affine) {
      scale[k] = args.gate.affine[at];
      bias[k] = args.gate.affine[channels + at];
    }
  }
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
        dy.set(k, fmaf(a[k], gradient, fmaf(b[k], value, c[k])));
      }
      store<T, N>(args.dy, i, dy);
    }
  }
}

// --- Reductions over rows
// ------------------------------------------------------------------------------------ A block owns a tile of
// eight channel vectors and a share of the rows; partial sums go to memory, and the last block of a tile adds
// them in a fixed order, so that the result does not depend on timing.

constexpr int kTileVectors = 8;
constexpr int kTileRows = kThreads / kTileVectors;

struct ReduceGrid {
  int tiles, splits;
  ReduceGrid(const Matrix& m, int n) {
    tiles = static_cast<int>(divide_up(m.channels, std::int64_t{kTileVectors} * n));
    const std::int64_t most = divide_up(m.rows, kTileRows * kUnroll), wanted = divide_up(132 * 6, tiles);
    splits = static_cast<int>(most < wanted ? most : wanted);
  }
};

template <int N>
__device__ bool sum_over_block(float (&first)[N], float (&second)[N], ReduceSpace space, float* totals) {
  constexpr int kTile = kTileVectors * N;  // channels
  __shared__ float shared[kTileRows][2][kTile + 1];
  __shared__ bool last;
  const int vector = threadIdx.x % kTileVectors, row = threadIdx.x / kTileVectors;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    shared[row][0][vector * N + k] = first[k];
    shared[row][1][vector * N + k] = second[k];
  }
  __syncthreads();
  float* partials = space.partials + std::int64_t{blockIdx.x} * gridDim.y * 2 * kTile;
  for (int i = threadIdx.x; i < 2 * kTile; i += kThreads) {
    float sum = 0.0F;
#pragma unroll 8
    for (int r = 0; r < kTileRows; ++r) sum += shared[r][i / kTile][i % kTile];
    partials[std::int64_t{blockIdx.y} * 2 * kTile + i] = sum;
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(&space.counters[blockIdx.x], 1U) == gridDim.y - 1;
    if (last) space.counters[blockIdx.x] = 0;
  }
  __syncthreads();
  if (!last) return false;
  __threadfence();
  // Groups of threads add interleaved shares of the partials, then one adds the groups.
  constexpr int kGroups = kThreads >= 2 * kTile ? kThreads / (2 * kTile) : 1;
  float* groups = &shared[0][0][0];
  for (int i = threadIdx.x; i < kGroups * 2 * kTile; i += kThreads) {
    double sum = 0.0;
#pragma unroll 8
    for (int p = i / (2 * kTile); p < static_cast<int>(gridDim.y); p += kGroups) {
      sum += static_cast<double>(__ldcg(&partials[std::int64_t{p} * 2 * kTile + i % (2 * kTile)]));
    }
    groups[i] = static_cast<float>(sum);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * kTile; i += kThreads) {
    float sum = 0.0F;
    for (int group = 0; group < kGroups; ++group) sum += groups[group * 2 * kTile + i];
    totals[i] = sum;
  }
  __syncthreads();
  return true;
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    channel_sums_kernel(std::int64_t rows, int row_vectors, const void* y, float* sums, ReduceSpace space) {
  const int vector = static_cast<int>(blockIdx.x) * kTileVectors + threadIdx.x % kTileVectors;
  const std::int64_t stride = std::int64_t{gridDim.y} * kTileRows;
  float sum[N] = {}, squares[N] = {};
  if (vector < row_vectors) {
    for (std::int64_t r = std::int64_t{blockIdx.y} * kTileRows + threadIdx.x / kTileVectors; r < rows;
         r += stride * kUnroll) {
      Vec<T, N> values[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (r + u * stride < rows) values[u] = load<T, N>(y, (r + u * stride) * row_vectors + vector);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (r + u * stride >= rows) break;
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const float value = values[u].at(k);
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
__global__ void __launch_bounds__(kThreads)
    grad_stats_kernel(std::int64_t rows, int row_vectors, NormGradStats args, ReduceSpace space) {
  const int vector = static_cast<int>(blockIdx.x) * kTileVectors + threadIdx.x % kTileVectors;
  const int channels = row_vectors * N;
  const std::int64_t stride = std::int64_t{gridDim.y} * kTileRows;
  float sum[N] = {}, dot[N] = {};
  if (vector < row_vectors) {
    const Lanes<N> mean(args.saved, vector * N);
    const float* affine = kGate == GateKind::affine ? args.gate.affine : args.saved;
    const Lanes<N> scale(affine, vector * N), bias(affine + channels, vector * N);
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
  if (!sum_over_block<N>(sum, dot, space, totals)) return;
  for (int i = threadIdx.x; i < kTile; i += kThreads) {
    const int channel = static_cast<int>(blockIdx.x) * kTile + i;
    if (channel >= channels) continue;
    args.dbeta[channel] = totals[i];
    args.dgamma[channel] = totals[kTile + i] * args.saved[channels + channel];
  }
}

__global__ void finalize_kernel(NormFinalize args) {
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= args.channels) return;
  double mean = args.mean[c], var = args.var[c];
  if (args.training) {
    mean = args.sums[c] / args.count;
    var = fmax(0.0, args.sums[args.channels + c] / args.count - mean * mean);
    const double unbiased = args.count > 1.0 ? var * args.count / (args.count - 1.0) : var;
    args.mean[c] += args.momentum * (static_cast<float>(mean) - args.mean[c]);
    args.var[c] += args.momentum * (static_cast<float>(unbiased) - args.var[c]);
  }
  const double inverse = 1.0 / sqrt(var + static_cast<double>(args.epsilon));
  const double scale = static_cast<double>(args.gamma[c]) * inverse;
  args.affine[c] = static_cast<float>(scale);
  args.affine[args.channels + c] = static_cast<float>(static_cast<double>(args.beta[c]) - mean * scale);
  if (args.saved == nullptr) return;
  args.saved[c] = static_cast<float>(mean);
  args.saved[args.channels + c] = static_cast<float>(inverse);
}

}  // namespace

std::size_t reduce_partials(const Matrix& m, Type type) {
  const int wide = type == Type::f32 ? 4 : 8;
  const int n = m.channels % wide == 0 ? wide : 1;
  const ReduceGrid grid(m, n);
  return static_cast<std::size_t>(grid.tiles) * static_cast<std::size_t>(grid.splits) * 2 * kTileVectors *
         static_cast<std::size_t>(n);
}

void channel_sums(Type type, Matrix m, const void* y, float* sums, ReduceSpace space, cudaStream_t stream) {
  dispatch(type, m.channels, [&]<typename T, int N>() {
    const ReduceGrid grid(m, N);
    channel_sums_kernel<T, N>
        <<<dim3(grid.tiles, grid.splits), kThreads, 0, stream>>>(m.rows, m.channels / N, y, sums, space);
  });
}

void norm_finalize(const NormFinalize& args, cudaStream_t stream) {
  finalize_kernel<<<static_cast<int>(divide_up(args.channels, 64)), 64, 0, stream>>>(args);
}

void affine_act(Type type, Matrix m, const AffineAct& args, cudaStream_t stream) {
  dispatch(type, m.channels, [&]<typename T, int N>() {
    if (args.shortcut == nullptr) return launch_affine_act<T, N, Shortcut::none>(m, args, stream);
    if (args.shortcut_affine == nullptr) return launch_affine_act<T, N, Shortcut::plain>(m, args, stream);
    launch_affine_act<T, N, Shortcut::affine>(m, args, stream);
  });
}

void norm_grad_stats(Type type, Matrix m, const NormGradStats& args, ReduceSpace space, cudaStream_t stream) {
  dispatch(type, m.channels, [&]<typename T, int N>() {
    const ReduceGrid grid(m, N);
    const dim3 blocks(grid.tiles, grid.splits);
    const int row_vectors = m.channels / N;
    dispatch_gate(args.gate, [&]<GateKind kGate>() {
      if (args.g2 != nullptr && args.masked != nullptr) {
        grad_stats_kernel<T, N, kGate, true, true>
            <<<blocks, kThreads, 0, stream>>>(m.rows, row_vectors, args, space);
      } else if (args.g2 != nullptr) {
        grad_stats_kernel<T, N, kGate, true, false>
            <<<blocks, kThreads, 0, stream>>>(m.rows, row_vectors, args, space);
      } else if (args.masked != nullptr) {
        grad_stats_kernel<T, N, kGate, false, true>
            <<<blocks, kThreads, 0, stream>>>(m.rows, row_vectors, args, space);
      } else {
        grad_stats_kernel<T, N, kGate, false, false>
            <<<blocks, kThreads, 0, stream>>>(m.rows, row_vectors, args, space);
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
      grad_apply_kernel<T, N, kGate>
          <<<grid, kThreads, 0, stream>>>(vectors, row_vectors, static_cast<float>(m.rows), args);
    });
  });
}

}  // namespace redline::backend::cuda
