// The check of a step's gradients and its update, over all tensors in one launch: a block per chunk.
#include <algorithm>

#include "backend/cuda/kernels/vec.cuh"
#include "graph/op.h"

namespace redline::backend::cuda {
namespace {

// Four neighbouring elements of an array of T, or as many as are left of it.
struct Four {
  float v[4];

  template <typename T>
  REDLINE_DEVICE static Four from(const void* array, int first, int count) {
    Four out;
    if (first + 4 <= count) {
      const auto part = load<T, 4>(array, first / 4);
#pragma unroll
      for (int k = 0; k < 4; ++k) out.v[k] = part.at(k);
    } else {
      for (int k = 0; k < 4; ++k)
        out.v[k] = first + k < count ? to_float(static_cast<const T*>(array)[first + k]) : 0.0F;
    }
    return out;
  }
  template <typename T>
  REDLINE_DEVICE void to(void* array, int first, int count) const {
    if (first + 4 <= count) {
      Vec<T, 4> part;
#pragma unroll
      for (int k = 0; k < 4; ++k) part.set(k, v[k]);
      store<T, 4>(array, first / 4, part);
    } else {
      for (int k = 0; k < 4 && first + k < count; ++k)
        static_cast<T*>(array)[first + k] = from_float<T>(v[k]);
    }
  }
};

// What a kernel reads and writes of an element. Writing weights includes their copy.
enum : int { kWeight = 1, kGradient = 2, kV = 4, kM = 8 };

// Walks over a chunk: change(w, g, v, m) changes an element. The types are dispatched outside the loop, since
// a branch between loads would keep them from overlapping.
template <int kReads, int kWrites, typename Change>
REDLINE_DEVICE void update_chunk(const UpdateChunk& chunk, const Change& change) {
  constexpr int kDeep = kReads & kM ? 2 : 4;  // registers have no room for more of Adam's
  constexpr int kStep = kThreads * 4;
  dispatch_type(kReads & kGradient ? chunk.g_type : Type::f32, [&]<typename G>() {
    dispatch_type(kWrites & kWeight ? chunk.copy_type : Type::f32, [&]<typename C>() {
      for (int base = static_cast<int>(threadIdx.x) * 4; base < chunk.count; base += kStep * kDeep) {
        Four w[kDeep], g[kDeep], v[kDeep], m[kDeep];
#pragma unroll
        for (int d = 0; d < kDeep; ++d) {
          const int i = base + d * kStep;
          if (i >= chunk.count) break;
          if (kReads & kWeight) w[d] = Four::from<float>(chunk.w, i, chunk.count);
          if (kReads & kGradient) g[d] = Four::from<G>(chunk.g, i, chunk.count);
          if (kReads & kV) v[d] = Four::from<float>(chunk.v, i, chunk.count);
          if (kReads & kM) m[d] = Four::from<float>(chunk.m, i, chunk.count);
        }
#pragma unroll
        for (int d = 0; d < kDeep; ++d) {
          const int i = base + d * kStep;
          if (i >= chunk.count) break;
#pragma unroll
          for (int k = 0; k < 4; ++k) change(w[d].v[k], g[d].v[k], v[d].v[k], m[d].v[k]);
          if (kWrites & kWeight) w[d].template to<float>(chunk.w, i, chunk.count);
          if (kWrites & kV) v[d].template to<float>(chunk.v, i, chunk.count);
          if (kWrites & kM) m[d].template to<float>(chunk.m, i, chunk.count);
          if ((kWrites & kWeight) && chunk.copy != nullptr) w[d].template to<C>(chunk.copy, i, chunk.count);
        }
      }
    });
  });
}

__global__ void __launch_bounds__(kThreads)
    sgd_kernel(const UpdateChunk* chunks, SgdRule rule, const float* scalars, const float* check) {
  if (check[graph::kFinite] == 0.0F) return;
  const UpdateChunk chunk = chunks[blockIdx.x];
  const float rate = scalars[graph::kLearningRate] * chunk.rate, scale = check[graph::kUnscale];
  update_chunk<kWeight | kGradient | kV, kWeight | kV>(chunk, [&](float& w, float gradient, float& v, float) {
    const float g = fmaf(chunk.weight_decay, w, gradient * scale);
    v = fmaf(rule.momentum, v, g);
    w -= rate * (rule.nesterov ? fmaf(rule.momentum, v, g) : v);
  });
}

__device__ float block_sum(float value) {
  return block_reduce<kThreads>(value, 0.0F, [](float a, float b) { return a + b; });
}

// Each block stores the sums of squares of its chunk's two vectors; a later kernel adds up those of a tensor.
__device__ void put_squares(float first, float second, float* partials) {
  first = block_sum(first);
  second = block_sum(second);
  if (threadIdx.x == 0) {
    partials[blockIdx.x * 2] = first;
    partials[blockIdx.x * 2 + 1] = second;
  }
}
__device__ float2 norms_of(const UpdateChunk& chunk, const float* partials) {
  float first = 0.0F, second = 0.0F;
  for (int i = threadIdx.x; i < chunk.chunks; i += kThreads) {
    first += partials[(chunk.first_chunk + i) * 2];
    second += partials[(chunk.first_chunk + i) * 2 + 1];
  }
  return {sqrtf(block_sum(first)), sqrtf(block_sum(second))};
}

__global__ void __launch_bounds__(kThreads) norms_kernel(Updates u) {
  if (u.check[graph::kFinite] == 0.0F) return;
  const float scale = u.check[graph::kUnscale];
  float w_squares = 0.0F, g_squares = 0.0F;
  update_chunk<kWeight | kGradient, 0>(u.chunks[blockIdx.x], [&](float w, float gradient, float, float) {
    w_squares = fmaf(w, w, w_squares);
    g_squares = fmaf(gradient * scale, gradient * scale, g_squares);
  });
  put_squares(w_squares, g_squares, u.partials);
}

__global__ void __launch_bounds__(kThreads) lars_kernel(Updates u, SgdRule rule) {
  if (u.check[graph::kFinite] == 0.0F) return;
  const UpdateChunk chunk = u.chunks[blockIdx.x];
  const auto [w_norm, g_norm] = norms_of(chunk, u.partials);
  float ratio = 1.0F;
  if (w_norm > 0.0F && g_norm > 0.0F) {
    ratio = rule.trust * w_norm / (g_norm + chunk.weight_decay * w_norm + rule.epsilon);
  }
  const float rate = u.scalars[graph::kLearningRate] * chunk.rate * ratio, scale = u.check[graph::kUnscale];
  update_chunk<kWeight | kGradient | kV, kWeight | kV>(chunk, [&](float& w, float gradient, float& v, float) {
    v = fmaf(rule.momentum, v, rate * fmaf(chunk.weight_decay, w, gradient * scale));
    w -= v;
  });
}

// Adam's moments, and the direction in which they point; see AdamStep of the CPU's kernels.
struct Moments {
  AdamRule rule;
  float scale, scale1, scale2;

  __device__ Moments(const AdamRule& adam, const float* check) : rule(adam), scale(check[graph::kUnscale]) {
    const float taken = check[graph::kTakenUpdates];
    scale1 = 1.0F / -expm1f(taken * rule.log_beta1);  // 1 - beta^taken, without cancellation
    scale2 = rsqrtf(-expm1f(taken * rule.log_beta2));
  }
  __device__ void add(float gradient, float& m, float& v) const {
    const float g = gradient * scale;
    m = fmaf(rule.beta1, m, (1.0F - rule.beta1) * g);
    v = fmaf(rule.beta2, v, (1.0F - rule.beta2) * g * g);
  }
  __device__ float direction(float m, float v) const {
    return m * scale1 / fmaf(sqrtf(v), scale2, rule.epsilon);
  }
};

__global__ void __launch_bounds__(kThreads) adamw_kernel(Updates u, AdamRule rule) {
  if (u.check[graph::kFinite] == 0.0F) return;
  const UpdateChunk chunk = u.chunks[blockIdx.x];
  const Moments moments(rule, u.check);
  const float rate = u.scalars[graph::kLearningRate] * chunk.rate;
  const float keep = 1.0F - rate * chunk.weight_decay;
  update_chunk<kWeight | kGradient | kV | kM, kWeight | kV | kM>(
      chunk, [&](float& w, float gradient, float& v, float& m) {
        moments.add(gradient, m, v);
        w = keep * w - rate * moments.direction(m, v);
      });
}

// Moves the moments, and adds up the squares of the weights and of what they will be moved by.
__global__ void __launch_bounds__(kThreads) lamb_moments_kernel(Updates u, AdamRule rule) {
  if (u.check[graph::kFinite] == 0.0F) return;
  const UpdateChunk chunk = u.chunks[blockIdx.x];
  const Moments moments(rule, u.check);
  float w_squares = 0.0F, step_squares = 0.0F;
  update_chunk<kWeight | kGradient | kV | kM, kV | kM>(
      chunk, [&](float w, float gradient, float& v, float& m) {
        moments.add(gradient, m, v);
        const float step = fmaf(chunk.weight_decay, w, moments.direction(m, v));
        w_squares = fmaf(w, w, w_squares);
        step_squares = fmaf(step, step, step_squares);
      });
  put_squares(w_squares, step_squares, u.partials);
}

__global__ void __launch_bounds__(kThreads) lamb_kernel(Updates u, AdamRule rule) {
  if (u.check[graph::kFinite] == 0.0F) return;
  const UpdateChunk chunk = u.chunks[blockIdx.x];
  const Moments moments(rule, u.check);
  const auto [w_norm, step_norm] = norms_of(chunk, u.partials);
  const float trust = w_norm > 0.0F && step_norm > 0.0F ? w_norm / step_norm : 1.0F;
  const float rate = u.scalars[graph::kLearningRate] * chunk.rate * trust;
  update_chunk<kWeight | kV | kM, kWeight>(chunk, [&](float& w, float, float v, float m) {
    w -= rate * fmaf(chunk.weight_decay, w, moments.direction(m, v));
  });
}

__global__ void __launch_bounds__(kThreads) ema_kernel(Updates u) {
  if (u.check[graph::kFinite] == 0.0F) return;
  const float decay = u.scalars[graph::kEmaDecay];
  update_chunk<kWeight | kV, kV>(
      u.chunks[blockIdx.x], [&](float w, float, float& v, float) { v = fmaf(decay, v, (1.0F - decay) * w); });
}

__global__ void __launch_bounds__(kThreads) squares_kernel(const UpdateChunk* chunks, float* partials) {
  begin_kernel();
  const UpdateChunk chunk = chunks[blockIdx.x];
  float sum = 0.0F;
  const auto add = [&](const auto& g) {
#pragma unroll
    for (int k = 0; k < 4; ++k) sum = fmaf(g.v[k], g.v[k], sum);
  };
  dispatch_type(chunk.g_type, [&]<typename G>() {
    if (chunk.count == kChunk) {  // most are whole: all of their loads can be in flight at once
      constexpr int kDeep = kChunk / kThreads / 4;
      Four g[kDeep];
#pragma unroll
      for (int d = 0; d < kDeep; ++d)
        g[d] = Four::from<G>(chunk.g, (d * kThreads + static_cast<int>(threadIdx.x)) * 4, kChunk);
#pragma unroll
      for (int d = 0; d < kDeep; ++d) add(g[d]);
    } else {
      for (int i = static_cast<int>(threadIdx.x) * 4; i < chunk.count; i += kThreads * 4)
        add(Four::from<G>(chunk.g, i, chunk.count));
    }
  });
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

constexpr int kCheckThreads = 1024;

// One block: eight threads per gradient add up its chunks, always in the same order.
__global__ void __launch_bounds__(kCheckThreads) check_kernel(GradientCheck args) {
  begin_kernel();
  constexpr int kTeam = 8, kTeams = kCheckThreads / kTeam, kWarps = kCheckThreads / 32;
  __shared__ double totals[kWarps];
  const int team = threadIdx.x / kTeam, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto add_lanes = [](double& sum, int from, int below) {
    for (int offset = from; offset < below; offset *= 2) sum += __shfl_xor_sync(~0U, sum, offset);
  };
  double mine = 0.0;
  for (int first = 0; first < args.tensors; first += kTeams) {
    const int tensor = first + team;
    double sum = 0.0;
    if (tensor < args.tensors) {
      const int end = args.first[tensor + 1];
#pragma unroll 8
      for (int i = args.first[tensor] + lane % kTeam; i < end; i += kTeam)
        sum += static_cast<double>(args.partials[i]);
    }
    add_lanes(sum, 1, kTeam);
    if (tensor < args.tensors && lane % kTeam == 0 && args.squares != nullptr)
      args.squares[tensor] = static_cast<float>(sum);
    mine += sum;
  }
  add_lanes(mine, kTeam, 32);
  if (lane == 0) totals[warp] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = 0.0;
  for (double part : totals) total += part;
  const bool finite = isfinite(total);
  const float scale = *args.loss_scale, unscale = args.scalars[graph::kGradientScale] / scale;
  args.check[graph::kFinite] = finite ? 1.0F : 0.0F;
  const auto norm = static_cast<float>(sqrt(total) * static_cast<double>(unscale));
  args.check[graph::kUnscale] = unscale * graph::clip_factor(args.attr, norm);
  args.check[graph::kGradientNorm] = norm;
  args.check[graph::kLossScale] = scale;
  args.check[graph::kTakenUpdates] = args.scalars[graph::kUpdate] - *args.skipped_steps;
  const graph::ScaleState next =
      graph::next_scale(args.attr, {scale, *args.good_steps, *args.skipped_steps}, finite);
  *args.loss_scale = next.loss_scale;
  *args.good_steps = next.good_steps;
  *args.skipped_steps = next.skipped_steps;
}

__global__ void __launch_bounds__(kThreads) copy_kernel(const float* flag, const CopyItem* items) {
  if (*flag != 0.0F) return;
  const CopyItem item = items[blockIdx.x];
  for (int i = threadIdx.x; i < item.count; i += kThreads) item.to[i] = item.from[i];
}

__global__ void __launch_bounds__(kThreads) clears_kernel(const ClearItem* items) {
  const ClearItem item = items[blockIdx.x];
  for (int i = threadIdx.x; i < item.words; i += kThreads) item.at[i] = 0;
}

template <typename T>
__global__ void accumulate_kernel(std::int64_t count, const float* scalars, float* total, const T* g) {
  const float keep = scalars[graph::kAccumulateKeep];
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    total[i] = keep == 0.0F ? to_float(g[i]) : fmaf(keep, total[i], to_float(g[i]));
  }
}

}  // namespace

void update(const Updates& u, const UpdateRule& rule, cudaStream_t stream) {
  using graph::OpKind;
  const auto run = [&](auto kernel, const auto&... arguments) {
    kernel<<<u.count, kThreads, 0, stream>>>(arguments...);
  };
  switch (rule.kind) {
    case OpKind::sgd:
      return run(sgd_kernel, u.chunks, rule.sgd, u.scalars, u.check);
    case OpKind::lars:
      run(norms_kernel, u);
      return run(lars_kernel, u, rule.sgd);
    case OpKind::adamw:
      return run(adamw_kernel, u, rule.adam);
    case OpKind::lamb:
      run(lamb_moments_kernel, u, rule.adam);
      return run(lamb_kernel, u, rule.adam);
    default:
      return run(ema_kernel, u);
  }
}

void gradient_check(const GradientCheck& args, cudaStream_t stream) {
  launch(squares_kernel, {static_cast<unsigned>(args.count), kThreads, 0, true}, stream, args.chunks,
         args.partials);
  launch(check_kernel, {1, kCheckThreads, 0, true}, stream, args);
}

void copy_unless(const float* flag, const CopyItem* items, int count, cudaStream_t stream) {
  copy_kernel<<<count, kThreads, 0, stream>>>(flag, items);
}

void accumulate(Type type, std::int64_t count, const float* scalars, float* total, const void* g,
                cudaStream_t stream) {
  dispatch_type(type, [&]<typename T>() {
    const int blocks = std::min(blocks_for(count), multiprocessors() * 8);
    accumulate_kernel<T><<<blocks, kThreads, 0, stream>>>(count, scalars, total, static_cast<const T*>(g));
  });
}

cudaError_t add_clear(cudaGraph_t graph, cudaGraphNode_t* node, const ClearItem* items, int count) {
  void* arguments[] = {&items};
  cudaKernelNodeParams params{};
  params.func = reinterpret_cast<void*>(&clears_kernel);
  params.gridDim = dim3(static_cast<unsigned>(count));
  params.blockDim = dim3(kThreads);
  params.kernelParams = arguments;
  return cudaGraphAddKernelNode(node, graph, nullptr, 0, &params);
}

}  // namespace redline::backend::cuda
