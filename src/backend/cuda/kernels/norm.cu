// Batch norm around the pending affine, channels-last.
#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/pass.cuh"
#include "backend/cuda/kernels/reduce.cuh"

namespace redline::backend::cuda {
namespace {

enum class Shortcut { none, plain, affine };

// Ors the bits of neighbouring threads into bytes and writes them; bit k belongs to the k-th element.
template <int N>
REDLINE_DEVICE void store_mask(std::uint8_t* mask, std::int64_t vector, unsigned bits, bool valid) {
  constexpr int kThreadsPerByte = 8 / N;
  bits <<= (threadIdx.x % kThreadsPerByte) * N;
  for (int offset = 1; offset < kThreadsPerByte; offset <<= 1) bits |= __shfl_xor_sync(~0U, bits, offset);
  if (valid && threadIdx.x % kThreadsPerByte == 0)
    mask[vector / kThreadsPerByte] = static_cast<std::uint8_t>(bits);
}

template <int N>
REDLINE_DEVICE unsigned load_mask(const std::uint8_t* mask, std::int64_t vector) {
  return __ldg(mask + vector * N / 8) >> (vector * N % 8);
}

template <typename T, int N, Shortcut kShortcut, bool kRelu, bool kMask, bool kFinalize>
struct AffineActWork {
  using Args = AffineAct;
  using Vector = Vec<T, N>;
  static constexpr int kInputs = kShortcut == Shortcut::none ? 1 : 2;
  static REDLINE_DEVICE bool is_settled(int /*input*/) { return false; }
  static REDLINE_DEVICE const void* input(const Args& args, int k) { return k == 0 ? args.y : args.shortcut; }

  PerChannel<N, 2> own;  // scale and bias
  Lanes<N> other_scale, other_bias;

  REDLINE_DEVICE AffineActWork(const Args& args, int channel, int channels, Find by)
      : own(pending_affine(args, channel, channels, by)),
        other_scale(kShortcut == Shortcut::affine ? args.shortcut_affine : nullptr, channel),
        other_bias(kShortcut == Shortcut::affine ? args.shortcut_affine + channels : nullptr, channel) {}

  REDLINE_DEVICE void operator()(const Args& args, const Vector (&in)[kInputs], std::int64_t at,
                                 bool valid) const {
    unsigned bits = 0;
    Vector z;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      float value = fmaf(in[0].at(k), own.v[0][k], own.v[1][k]);
      if constexpr (kShortcut == Shortcut::plain) value += in[1].at(k);
      if constexpr (kShortcut == Shortcut::affine) value += fmaf(in[1].at(k), other_scale[k], other_bias[k]);
      if constexpr (kMask) bits |= (value > 0.0F ? 1U : 0U) << k;
      if constexpr (kRelu) value = value < 0.0F ? 0.0F : value;
      z.set(k, value);
    }
    if (valid) store<T, N>(args.z, at, z);
    if constexpr (kMask) store_mask<N>(args.mask, at, bits, valid);
  }

 private:
  // Reads the scale and bias, or computes and stores them, which a block does together.
  static REDLINE_DEVICE PerChannel<N, 2> pending_affine(const Args& args, int channel, int channels,
                                                        Find by) {
    using Own = PerChannel<N, 2>;
    if constexpr (kFinalize) {
      const bool together = Own::shared_by_block(channels, Find::by_block);
      const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
      return Own(channel, channels, Find::by_block, [&](int c) {
        const ChannelNorm found = norm_of(args.norm, c);
        // Blocks share the storing, so that none is delayed.
        const bool keeps = together ? c / kThreads % gridDim.x == blockIdx.x : thread < channels / N;
        if (keeps) keep(args.norm, c, found);
        return typename Own::Values{{found.scale, found.bias}};
      });
    } else {
      return Own(channel, channels, by, [&](int c) {
        return typename Own::Values{{args.affine[c], args.affine[channels + c]}};
      });
    }
  }
};

template <typename T, int N, Shortcut kShortcut, bool kFinalize>
void run_affine_act(const Matrix& m, const AffineAct& act, cudaStream_t stream) {
  const auto run = [&]<bool kRelu, bool kMask>() {
    using Work = AffineActWork<T, N, kShortcut, kRelu, kMask, kFinalize>;
    pass<Work>(m, act, stream);
  };
  if (act.mask != nullptr) return run.template operator()<true, true>();
  act.relu ? run.template operator()<true, false>() : run.template operator()<false, false>();
}

enum class GateKind { none, affine, mask };

// Calls body.template operator()<kind>().
template <typename Body>
void dispatch_gate(const Gate& gate, const Body& body) {
  if (gate.mask != nullptr) return body.template operator()<GateKind::mask>();
  if (gate.affine != nullptr) return body.template operator()<GateKind::affine>();
  body.template operator()<GateKind::none>();
}

template <typename T, int N, GateKind kGate>
struct GradApplyWork {
  struct Args {
    NormGradApply apply;
    float per_channel;
  };
  using Vector = Vec<T, N>;
  static constexpr int kInputs = 2;
  static REDLINE_DEVICE bool is_settled(int k) { return k == 1; }  // forward wrote y
  static REDLINE_DEVICE const void* input(const Args& args, int k) {
    return k == 0 ? args.apply.g : args.apply.y;
  }

  NormSlope<N> slope;
  Lanes<N> scale, bias;

  REDLINE_DEVICE GradApplyWork(const Args& args, int channel, int channels, Find by)
      : slope(args.apply, channel, channels, args.per_channel, by),
        scale(kGate == GateKind::affine ? args.apply.gate.affine : nullptr, channel),
        bias(kGate == GateKind::affine ? args.apply.gate.affine + channels : nullptr, channel) {}

  REDLINE_DEVICE void operator()(const Args& args, const Vector (&in)[kInputs], std::int64_t at,
                                 bool valid) const {
    if (!valid) return;
    const unsigned bits = kGate == GateKind::mask ? load_mask<N>(args.apply.gate.mask, at) : 0U;
    Vector dy;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      float gradient = in[0].at(k);
      const float value = in[1].at(k);
      if constexpr (kGate == GateKind::affine)
        gradient = fmaf(value, scale[k], bias[k]) > 0.0F ? gradient : 0.0F;
      if constexpr (kGate == GateKind::mask) gradient = (bits >> k & 1U) != 0U ? gradient : 0.0F;
      dy.set(k, slope.at(k, gradient, value));
    }
    store<T, N>(args.apply.dy, at, dy);
  }
};

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
  const int channels = row_vectors * N;
  sum_over_block<N>(sum, squares, channels, space,
                    [&](int which, int channel, float total) { sums[which * channels + channel] = total; });
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
    const Lanes<N> mean(args.norm.saved, vector * N);
    const float* affine = kGate == GateKind::affine ? args.norm.gate.affine : nullptr;
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
        y[u] = load<T, N>(args.norm.y, i);
        if constexpr (kGate == GateKind::mask) bits[u] = load_mask<N>(args.norm.gate.mask, i);
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
  sum_over_block<N>(sum, dot, channels, space, [&](int which, int channel, float total) {
    put_gradient(args.norm, channels, which, channel, total);
  });
}

__global__ void finalize_kernel(NormFinalize args) {
  begin_kernel();
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c < args.channels) keep(args, c, norm_of(args, c));
}

}  // namespace

std::size_t reduce_partials(const Matrix& m) {
  std::size_t found = 0;
  dispatch(m.type, m.channels, [&]<typename T, int N>() {
    const ReduceGrid grid(m, N);
    found = static_cast<std::size_t>(grid.tiles * grid.splits) * 2 * kTileVectors * N;
  });
  return found;
}

void channel_sums(const Matrix& m, const void* y, const float* rough, float* sums, ReduceSpace space,
                  cudaStream_t stream) {
  dispatch(m.type, m.channels, [&]<typename T, int N>() {
    const ReduceGrid grid(m, N);
    launch(channel_sums_kernel<T, N>, {grid.blocks()}, stream, m.rows, m.channels / N, y, rough, sums, space);
  });
}

void norm_finalize(const NormFinalize& args, cudaStream_t stream) {
  launch(finalize_kernel, {static_cast<unsigned>(divide_up(args.channels, 64)), 64, 0, true}, stream, args);
}

void affine_act(const Matrix& m, const AffineAct& args, cudaStream_t stream) {
  dispatch(m.type, m.channels, [&]<typename T, int N>() {
    const auto run = [&]<bool kFinalize>() {
      if (args.shortcut == nullptr) return run_affine_act<T, N, Shortcut::none, kFinalize>(m, args, stream);
      if (args.shortcut_affine == nullptr)
        return run_affine_act<T, N, Shortcut::plain, kFinalize>(m, args, stream);
      run_affine_act<T, N, Shortcut::affine, kFinalize>(m, args, stream);
    };
    args.finalizes ? run.template operator()<true>() : run.template operator()<false>();
  });
}

void norm_grad_stats(const Matrix& m, const NormGradStats& args, ReduceSpace space, cudaStream_t stream) {
  dispatch(m.type, m.channels, [&]<typename T, int N>() {
    const int row_vectors = m.channels / N;
    const Launch how{ReduceGrid(m, N).blocks(), kThreads, 0, is_small(m.rows * row_vectors)};
    const auto run = [&](auto kernel) { launch(kernel, how, stream, m.rows, row_vectors, args, space); };
    dispatch_gate(args.norm.gate, [&]<GateKind kGate>() {
      const bool two = args.g2 != nullptr;
      if (args.masked != nullptr) {
        run(two ? grad_stats_kernel<T, N, kGate, true, true> : grad_stats_kernel<T, N, kGate, false, true>);
      } else {
        run(two ? grad_stats_kernel<T, N, kGate, true, false> : grad_stats_kernel<T, N, kGate, false, false>);
      }
    });
  });
}

void norm_grad_apply(const Matrix& m, const NormGradApply& args, cudaStream_t stream) {
  dispatch(m.type, m.channels, [&]<typename T, int N>() {
    dispatch_gate(args.gate, [&]<GateKind kGate>() {
      pass<GradApplyWork<T, N, kGate>>(m, {args, static_cast<float>(m.rows)}, stream);
    });
  });
}

}  // namespace redline::backend::cuda
