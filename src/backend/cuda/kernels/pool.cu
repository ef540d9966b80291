// Pooling, channels-last. Index bytes lie like the pooled tensor.
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {
namespace {

template <typename T, int N, bool kAffine>
__global__ void __launch_bounds__(kThreads)
    max_pool_kernel(Pool p, const void* x, const float* affine, void* y, std::uint8_t* index) {
  const int row_vectors = p.channels / N;
  const std::int64_t vectors = std::int64_t{p.images} * p.out_h * p.out_w * row_vectors;
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= vectors) return;
  const int vector = static_cast<int>(i % row_vectors);
  const std::int64_t pixel = i / row_vectors;
  const int ow = static_cast<int>(pixel % p.out_w), oh = static_cast<int>(pixel / p.out_w % p.out_h);
  const std::int64_t image = pixel / p.out_w / p.out_h;
  float scale[N], bias[N], best[N];
  Vec<std::uint8_t, N> where;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if constexpr (kAffine) {
      scale[k] = affine[vector * N + k];
      bias[k] = affine[p.channels + vector * N + k];
    }
    best[k] = -INFINITY;
    where.v[k] = 0;
  }
  for (int kh = 0; kh < p.kernel; ++kh) {
    const int h = oh * p.stride - p.pad + kh;
    if (h < 0 || h >= p.h) continue;
    for (int kw = 0; kw < p.kernel; ++kw) {
      const int w = ow * p.stride - p.pad + kw;
      if (w < 0 || w >= p.w) continue;
      const Vec<T, N> in = load<T, N>(x, ((image * p.h + h) * p.w + w) * row_vectors + vector);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        float value = in.at(k);
        if constexpr (kAffine) {
          value = fmaf(value, scale[k], bias[k]);
          value = value < 0.0F ? 0.0F : value;
        }
        if (!(value <= best[k])) {  // the first maximum wins, and NaN shows
          best[k] = value;
          where.v[k] = static_cast<std::uint8_t>(kh * p.kernel + kw);
        }
      }
    }
  }
  Vec<T, N> out;
#pragma unroll
  for (int k = 0; k < N; ++k) out.set(k, best[k]);
  store<T, N>(y, i, out);
  if (index != nullptr) store<std::uint8_t, N>(index, i, where);
}

// Every input pixel looks at the windows that cover it and takes the gradients it won.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    max_pool_grad_kernel(Pool p, const void* dy, const std::uint8_t* index, void* dx) {
  const int row_vectors = p.channels / N;
  const std::int64_t vectors = std::int64_t{p.images} * p.h * p.w * row_vectors;
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= vectors) return;
  const int vector = static_cast<int>(i % row_vectors);
  const std::int64_t pixel = i / row_vectors;
  const int w = static_cast<int>(pixel % p.w), h = static_cast<int>(pixel / p.w % p.h);
  const std::int64_t image = pixel / p.w / p.h;
  const auto first = [&](int at) {
    const int from = at + p.pad - p.kernel + 1;
    return from <= 0 ? 0 : (from + p.stride - 1) / p.stride;
  };
  const auto last = [&](int at, int count) {
    const int to = (at + p.pad) / p.stride;
    return to < count ? to : count - 1;
  };
  float sum[N] = {};
  for (int oh = first(h); oh <= last(h, p.out_h); ++oh) {
    for (int ow = first(w); ow <= last(w, p.out_w); ++ow) {
      const int tap = (h - (oh * p.stride - p.pad)) * p.kernel + w - (ow * p.stride - p.pad);
      const std::int64_t at = ((image * p.out_h + oh) * p.out_w + ow) * row_vectors + vector;
      const Vec<std::uint8_t, N> where = load<std::uint8_t, N>(index, at);
      const Vec<T, N> gradient = load<T, N>(dy, at);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += where.v[k] == tap ? gradient.at(k) : 0.0F;
    }
  }
  Vec<T, N> out;
#pragma unroll
  for (int k = 0; k < N; ++k) out.set(k, sum[k]);
  store<T, N>(dx, i, out);
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    avg_pool_kernel(int images, int pixels, int row_vectors, const void* x, void* y) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= std::int64_t{images} * row_vectors) return;
  const std::int64_t image = i / row_vectors, vector = i % row_vectors;
  float sum[N] = {};
#pragma unroll 7
  for (int p = 0; p < pixels; ++p) {
    const Vec<T, N> in = load<T, N>(x, (image * pixels + p) * row_vectors + vector);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += in.at(k);
  }
  Vec<T, N> out;
#pragma unroll
  for (int k = 0; k < N; ++k) out.set(k, sum[k] / static_cast<float>(pixels));
  store<T, N>(y, i, out);
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    avg_pool_grad_kernel(int images, int pixels, int row_vectors, const void* dy, void* dx) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= std::int64_t{images} * pixels * row_vectors) return;
  const std::int64_t image = i / row_vectors / pixels, vector = i % row_vectors;
  const Vec<T, N> in = load<T, N>(dy, image * row_vectors + vector);
  Vec<T, N> out;
#pragma unroll
  for (int k = 0; k < N; ++k) out.set(k, in.at(k) / static_cast<float>(pixels));
  store<T, N>(dx, i, out);
}

int blocks_for(std::int64_t vectors) { return static_cast<int>(divide_up(vectors, kThreads)); }

}  // namespace

void max_pool(Type type, const Pool& p, const void* x, const float* affine, void* y, std::uint8_t* index,
              cudaStream_t stream) {
  dispatch(type, p.channels, [&]<typename T, int N>() {
    const int grid = blocks_for(std::int64_t{p.images} * p.out_h * p.out_w * (p.channels / N));
    if (affine != nullptr) {
      max_pool_kernel<T, N, true><<<grid, kThreads, 0, stream>>>(p, x, affine, y, index);
    } else {
      max_pool_kernel<T, N, false><<<grid, kThreads, 0, stream>>>(p, x, affine, y, index);
    }
  });
}

void max_pool_grad(Type type, const Pool& p, const void* dy, const std::uint8_t* index, void* dx,
                   cudaStream_t stream) {
  dispatch(type, p.channels, [&]<typename T, int N>() {
    const int grid = blocks_for(std::int64_t{p.images} * p.h * p.w * (p.channels / N));
    max_pool_grad_kernel<T, N><<<grid, kThreads, 0, stream>>>(p, dy, index, dx);
  });
}

void avg_pool(Type type, int images, int pixels, int channels, const void* x, void* y, cudaStream_t stream) {
  dispatch(type, channels, [&]<typename T, int N>() {
    avg_pool_kernel<T, N><<<blocks_for(std::int64_t{images} * (channels / N)), kThreads, 0, stream>>>(
        images, pixels, channels / N, x, y);
  });
}

void avg_pool_grad(Type type, int images, int pixels, int channels, const void* dy, void* dx,
                   cudaStream_t stream) {
  dispatch(type, channels, [&]<typename T, int N>() {
    avg_pool_grad_kernel<T, N>
        <<<blocks_for(std::int64_t{images} * pixels * (channels / N)), kThreads, 0, stream>>>(
            images, pixels, channels / N, dy, dx);
  });
}

}  // namespace redline::backend::cuda
