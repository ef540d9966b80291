// Optimizer steps over all parameters in one launch: a block per chunk.
#include "backend/cuda/kernels/vec.cuh"
#include "graph/op.h"

namespace redline::backend::cuda {
namespace {

__device__ __forceinline__ float gradient_at(const UpdateChunk& chunk, int i) {
  switch (chunk.g_type) {
    case Type::f16:
      return to_float(static_cast<const __half*>(chunk.g)[i]);
    case Type::bf16:
      return to_float(static_cast<const __nv_bfloat16*>(chunk.g)[i]);
    default:
      return static_cast<const float*>(chunk.g)[i];
  }
}

__device__ __forceinline__ void put_copy(const UpdateChunk& chunk, int i, float value) {
  if (chunk.copy == nullptr) return;
  switch (chunk.copy_type) {
    case Type::f16:
      static_cast<__half*>(chunk.copy)[i] = from_float<__half>(value);
      break;
    case Type::bf16:
      static_cast<__nv_bfloat16*>(chunk.copy)[i] = from_float<__nv_bfloat16>(value);
      break;
    default:
      static_cast<float*>(chunk.copy)[i] = value;
      break;
  }
}

__global__ void __launch_bounds__(kThreads)
    sgd_kernel(const UpdateChunk* chunks, UpdateRule rule, const float* scalars) {
  const UpdateChunk chunk = chunks[blockIdx.x];
  const float rate = scalars[graph::kLearningRate], scale = scalars[graph::kGradientScale];
#pragma unroll 4
  for (int i = threadIdx.x; i < chunk.count; i += kThreads) {
    const float w = chunk.w[i];
    const float g = fmaf(chunk.weight_decay, w, gradient_at(chunk, i) * scale);
    const float v = fmaf(rule.momentum, chunk.v[i], g);
    const float updated = w - rate * (rule.nesterov ? fmaf(rule.momentum, v, g) : v);
    chunk.v[i] = v;
    chunk.w[i] = updated;
    put_copy(chunk, i, updated);
  }
}

__device__ float block_sum(float value) {
  __shared__ float shared[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0U, value, offset);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0F;
  for (float part : shared) total += part;
  return total;
}

__global__ void __launch_bounds__(kThreads)
    norms_kernel(const UpdateChunk* chunks, const float* scalars, float* partials) {
  const UpdateChunk chunk = chunks[blockIdx.x];
  const float scale = scalars[graph::kGradientScale];
  float w_squares = 0.0F, g_squares = 0.0F;
  for (int i = threadIdx.x; i < chunk.count; i += kThreads) {
    const float w = chunk.w[i], g = gradient_at(chunk, i) * scale;
    w_squares = fmaf(w, w, w_squares);
    g_squares = fmaf(g, g, g_squares);
  }
  w_squares = block_sum(w_squares);
  g_squares = block_sum(g_squares);
  if (threadIdx.x == 0) {
    partials[blockIdx.x * 2] = w_squares;
    partials[blockIdx.x * 2 + 1] = g_squares;
  }
}

__global__ void __launch_bounds__(kThreads)
    lars_kernel(const UpdateChunk* chunks, UpdateRule rule, const float* scalars, const float* partials) {
  const UpdateChunk chunk = chunks[blockIdx.x];
  float w_squares = 0.0F, g_squares = 0.0F;
  for (int i = threadIdx.x; i < chunk.chunks; i += kThreads) {
    w_squares += partials[(chunk.first_chunk + i) * 2];
    g_squares += partials[(chunk.first_chunk + i) * 2 + 1];
  }
  const float w_norm = sqrtf(block_sum(w_squares)), g_norm = sqrtf(block_sum(g_squares));
  float ratio = 1.0F;
  if (w_norm > 0.0F && g_norm > 0.0F) {
    ratio = rule.trust * w_norm / (g_norm + chunk.weight_decay * w_norm + rule.epsilon);
  }
  const float rate = scalars[graph::kLearningRate] * ratio, scale = scalars[graph::kGradientScale];
#pragma unroll 4
  for (int i = threadIdx.x; i < chunk.count; i += kThreads) {
    const float w = chunk.w[i];
    const float g = fmaf(chunk.weight_decay, w, gradient_at(chunk, i) * scale);
    const float v = fmaf(rule.momentum, chunk.v[i], rate * g);
    chunk.v[i] = v;
    chunk.w[i] = w - v;
    put_copy(chunk, i, w - v);
  }
}

__global__ void __launch_bounds__(kThreads) ema_kernel(const UpdateChunk* chunks, const float* scalars) {
  const UpdateChunk chunk = chunks[blockIdx.x];
  const float decay = scalars[graph::kEmaDecay];
#pragma unroll 4
  for (int i = threadIdx.x; i < chunk.count; i += kThreads) {
    chunk.v[i] = fmaf(decay, chunk.v[i], (1.0F - decay) * chunk.w[i]);
  }
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

void sgd(const UpdateChunk* chunks, int count, UpdateRule rule, const float* scalars, cudaStream_t stream) {
  sgd_kernel<<<count, kThreads, 0, stream>>>(chunks, rule, scalars);
}

void lars(const UpdateChunk* chunks, int count, UpdateRule rule, const float* scalars, float* partials,
          cudaStream_t stream) {
  norms_kernel<<<count, kThreads, 0, stream>>>(chunks, scalars, partials);
  lars_kernel<<<count, kThreads, 0, stream>>>(chunks, rule, scalars, partials);
}

void ema(const UpdateChunk* chunks, int count, const float* scalars, cudaStream_t stream) {
  ema_kernel<<<count, kThreads, 0, stream>>>(chunks, scalars);
}

void accumulate(Type type, std::int64_t count, const float* scalars, float* total, const void* g,
                cudaStream_t stream) {
  dispatch(type, 1, [&]<typename T, int N>() {
    const std::int64_t blocks = divide_up(count, kThreads);
    accumulate_kernel<T><<<static_cast<int>(blocks < 132 * 8 ? blocks : 132 * 8), kThreads, 0, stream>>>(
        count, scalars, total, static_cast<const T*>(g));
  });
}

}  // namespace redline::backend::cuda
