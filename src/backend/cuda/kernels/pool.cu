// Pooling, channels-last. Index bytes lie like the pooled tensor.
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {
namespace {

template <typename T, int N, bool kAffine>
__global__ void __launch_bounds__(kThreads)
    max_pool_kernel(Pool p, const void* x, const float* affine, void* y, std::uint8_t* index, void* picked) {
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
  Vec<T, N> raw;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if constexpr (kAffine) {
      scale[k] = affine[vector * N + k];
      bias[k] = affine[p.channels + vector * N + k];
    }
    best[k] = -INFINITY;
    where.v[k] = 0;
    raw.set(k, 0.0F);
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
          raw.v[k] = in.v[k];
        }
      }
    }
  }
  Vec<T, N> out;
#pragma unroll
  for (int k = 0; k < N; ++k) out.set(k, best[k]);
  store<T, N>(y, i, out);
  if (index != nullptr) store<std::uint8_t, N>(index, i, where);
  if (picked != nullptr) store<T, N>(picked, i, raw);
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

// A block takes up to 32 vectors of an image's channels; its warps each add up a share of the pixels.
constexpr int kMeanWarps = kThreads / 32;

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    avg_pool_kernel(int pixels, int row_vectors, const void* x, void* y) {
  __shared__ float shares[kMeanWarps][N][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int vector = static_cast<int>(blockIdx.x) * 32 + lane;
  const std::int64_t image = blockIdx.y;
  constexpr int kDeep = 7;  // of 7x7 pixels a thread has seven at most
  float sum[N] = {};
  for (int first = warp; first < pixels && vector < row_vectors; first += kDeep * kMeanWarps) {
    Vec<T, N> in[kDeep];
#pragma unroll
    for (int u = 0; u < kDeep; ++u) {
      const int p = first + u * kMeanWarps;
      if (p < pixels) in[u] = load<T, N>(x, (image * pixels + p) * row_vectors + vector);
    }
#pragma unroll
    for (int u = 0; u < kDeep; ++u) {
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += first + u * kMeanWarps < pixels ? in[u].at(k) : 0.0F;
    }
  }
#pragma unroll
  for (int k = 0; k < N; ++k) shares[warp][k][lane] = sum[k];
  __syncthreads();
  if (warp > 0 || vector >= row_vectors) return;
  Vec<T, N> out;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    for (int other = 1; other < kMeanWarps; ++other) sum[k] += shares[other][k][lane];
    out.set(k, sum[k] / static_cast<float>(pixels));
  }
  store<T, N>(y, image * row_vectors + vector, out);
}

constexpr int kSpread = 7;  // pixels that a thread writes

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    avg_pool_grad_kernel(int images, int pixels, int row_vectors, const void* dy, void* dx) {
  const auto shares = static_cast<unsigned>((pixels + kSpread - 1) / kSpread);
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= std::int64_t{images} * shares * row_vectors) return;
  const std::int64_t vector = i % row_vectors, image = i / row_vectors / shares;
  const int first = static_cast<int>(i / row_vectors % shares) * kSpread;
  const Vec<T, N> in = load<T, N>(dy, image * row_vectors + vector);
  Vec<T, N> out;
#pragma unroll
  for (int k = 0; k < N; ++k) out.set(k, in.at(k) / static_cast<float>(pixels));
#pragma unroll
  for (int p = first; p < first + kSpread; ++p) {
    if (p < pixels) store<T, N>(dx, (image * pixels + p) * row_vectors + vector, out);
  }
}

// The pixels of one side of a window that lie on the image.
__device__ __forceinline__ int local_length(int window, int kernel, int size) {
  const int left = size - window * kernel;
  return left < kernel ? left : kernel;
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads) local_avg_pool_kernel(Pool p, const void* x, void* y) {
  const int row_vectors = p.channels / N;
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= std::int64_t{p.images} * p.out_h * p.out_w * row_vectors) return;
  const int vector = static_cast<int>(i % row_vectors);
  const std::int64_t pixel = i / row_vectors;
  const int ow = static_cast<int>(pixel % p.out_w), oh = static_cast<int>(pixel / p.out_w % p.out_h);
  const std::int64_t image = pixel / p.out_w / p.out_h;
  const int height = local_length(oh, p.kernel, p.h), width = local_length(ow, p.kernel, p.w);
  float sum[N] = {};
  for (int kh = 0; kh < height; ++kh) {
    for (int kw = 0; kw < width; ++kw) {
      const std::int64_t at = (image * p.h + oh * p.kernel + kh) * p.w + ow * p.kernel + kw;
      const Vec<T, N> in = load<T, N>(x, at * row_vectors + vector);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += in.at(k);
    }
  }
  Vec<T, N> out;
#pragma unroll
  for (int k = 0; k < N; ++k) out.set(k, sum[k] / static_cast<float>(height * width));
  store<T, N>(y, i, out);
}

// Every input pixel is in one window.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) local_avg_pool_grad_kernel(Pool p, const void* dy, void* dx) {
  const int row_vectors = p.channels / N;
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= std::int64_t{p.images} * p.h * p.w * row_vectors) return;
  const int vector = static_cast<int>(i % row_vectors);
  const std::int64_t pixel = i / row_vectors;
  const int ow = static_cast<int>(pixel % p.w) / p.kernel,
            oh = static_cast<int>(pixel / p.w % p.h) / p.kernel;
  const std::int64_t image = pixel / p.w / p.h;
  const int pixels = local_length(oh, p.kernel, p.h) * local_length(ow, p.kernel, p.w);
  const Vec<T, N> in = load<T, N>(dy, ((image * p.out_h + oh) * p.out_w + ow) * row_vectors + vector);
  Vec<T, N> out;
#pragma unroll
  for (int k = 0; k < N; ++k) out.set(k, in.at(k) / static_cast<float>(pixels));
  store<T, N>(dx, i, out);
}

}  // namespace

void max_pool(Type type, const Pool& p, const void* x, const float* affine, void* y, std::uint8_t* index,
              void* picked, cudaStream_t stream) {
  if (affine != nullptr && stem_pool(type, p, x, affine, y, index, picked, stream)) return;
  dispatch(type, p.channels, [&]<typename T, int N>() {
    const int grid = blocks_for(std::int64_t{p.images} * p.out_h * p.out_w * (p.channels / N));
    if (affine != nullptr) {
      max_pool_kernel<T, N, true><<<grid, kThreads, 0, stream>>>(p, x, affine, y, index, picked);
    } else {
      max_pool_kernel<T, N, false><<<grid, kThreads, 0, stream>>>(p, x, affine, y, index, picked);
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
    const int row_vectors = channels / N;
    const dim3 grid(static_cast<unsigned>(divide_up(row_vectors, 32)), static_cast<unsigned>(images));
    avg_pool_kernel<T, N><<<grid, kThreads, 0, stream>>>(pixels, row_vectors, x, y);
  });
}

void avg_pool_grad(Type type, int images, int pixels, int channels, const void* dy, void* dx,
                   cudaStream_t stream) {
  dispatch(type, channels, [&]<typename T, int N>() {
    const std::int64_t threads = images * divide_up(pixels, kSpread) * (channels / N);
    avg_pool_grad_kernel<T, N>
        <<<blocks_for(threads), kThreads, 0, stream>>>(images, pixels, channels / N, dy, dx);
  });
}

void local_avg_pool(Type type, const Pool& p, const void* x, void* y, cudaStream_t stream) {
  dispatch(type, p.channels, [&]<typename T, int N>() {
    const int grid = blocks_for(std::int64_t{p.images} * p.out_h * p.out_w * (p.channels / N));
    local_avg_pool_kernel<T, N><<<grid, kThreads, 0, stream>>>(p, x, y);
  });
}

void local_avg_pool_grad(Type type, const Pool& p, const void* dy, void* dx, cudaStream_t stream) {
  dispatch(type, p.channels, [&]<typename T, int N>() {
    const int grid = blocks_for(std::int64_t{p.images} * p.h * p.w * (p.channels / N));
    local_avg_pool_grad_kernel<T, N><<<grid, kThreads, 0, stream>>>(p, dy, dx);
  });
}

}  // namespace redline::backend::cuda
