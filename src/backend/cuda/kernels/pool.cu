// Pooling, channels-last. Index bytes have the layout of the pooled tensor.
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {
namespace {

// A thread's vector of a tensor of images, a pixel of `height` by `width`.
template <int N>
struct Place {
  std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;  // of all vectors
  int row_vectors, vector, h, w;
  std::int64_t image;

  REDLINE_DEVICE Place(const Pool& p, int height, int width)
      : row_vectors(p.channels / N), vector(static_cast<int>(i % row_vectors)) {
    const std::int64_t pixel = i / row_vectors;
    w = static_cast<int>(pixel % width);
    h = static_cast<int>(pixel / width % height);
    image = pixel / width / height;
  }
  // The same channels of another pixel, in a tensor of this height and width.
  REDLINE_DEVICE std::int64_t at(int height, int width, int row, int column) const {
    return ((image * height + row) * width + column) * row_vectors + vector;
  }
};

template <typename T, int N, bool kAffine>
__global__ void __launch_bounds__(kThreads)
    max_pool_kernel(Pool p, const void* x, const float* affine, void* y, std::uint8_t* index, void* picked) {
  const Place<N> out(p, p.out_h, p.out_w);
  if (out.image >= p.images) return;
  const Lanes<N> scale(kAffine ? affine : nullptr, out.vector * N),
      bias(kAffine ? affine + p.channels : nullptr, out.vector * N);
  float best[N];
  Vec<std::uint8_t, N> where{};
  Vec<T, N> raw{};
#pragma unroll
  for (float& value : best) value = -INFINITY;
  for (int kh = 0; kh < p.kernel; ++kh) {
    const int h = out.h * p.stride - p.pad + kh;
    if (h < 0 || h >= p.h) continue;
    for (int kw = 0; kw < p.kernel; ++kw) {
      const int w = out.w * p.stride - p.pad + kw;
      if (w < 0 || w >= p.w) continue;
      const Vec<T, N> in = load<T, N>(x, out.at(p.h, p.w, h, w));
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
  store(y, out.i, Vec<T, N>::make([&](int k) { return best[k]; }));
  if (index != nullptr) store(index, out.i, where);
  if (picked != nullptr) store(picked, out.i, raw);
}

// Every input pixel adds up the gradients of the windows whose maximum it is.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    max_pool_grad_kernel(Pool p, const void* dy, const std::uint8_t* index, void* dx) {
  const Place<N> in(p, p.h, p.w);
  if (in.image >= p.images) return;
  const auto first = [&](int at) {
    const int from = at + p.pad - p.kernel + 1;
    return from <= 0 ? 0 : (from + p.stride - 1) / p.stride;
  };
  const auto last = [&](int at, int count) { return min((at + p.pad) / p.stride, count - 1); };
  float sum[N] = {};
  for (int oh = first(in.h); oh <= last(in.h, p.out_h); ++oh) {
    for (int ow = first(in.w); ow <= last(in.w, p.out_w); ++ow) {
      const int tap = (in.h - (oh * p.stride - p.pad)) * p.kernel + in.w - (ow * p.stride - p.pad);
      const std::int64_t at = in.at(p.out_h, p.out_w, oh, ow);
      const Vec<std::uint8_t, N> where = load<std::uint8_t, N>(index, at);
      const Vec<T, N> gradient = load<T, N>(dy, at);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += where.v[k] == tap ? gradient.at(k) : 0.0F;
    }
  }
  store(dx, in.i, Vec<T, N>::make([&](int k) { return sum[k]; }));
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

// The pixels of one side of a window that lie on the image.
REDLINE_DEVICE int local_length(int window, int kernel, int size) {
  return min(size - window * kernel, kernel);
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads) local_avg_pool_kernel(Pool p, const void* x, void* y) {
  const Place<N> out(p, p.out_h, p.out_w);
  if (out.image >= p.images) return;
  const int height = local_length(out.h, p.kernel, p.h), width = local_length(out.w, p.kernel, p.w);
  float sum[N] = {};
  for (int kh = 0; kh < height; ++kh) {
    for (int kw = 0; kw < width; ++kw) {
      const Vec<T, N> in = load<T, N>(x, out.at(p.h, p.w, out.h * p.kernel + kh, out.w * p.kernel + kw));
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += in.at(k);
    }
  }
  store(y, out.i, Vec<T, N>::make([&](int k) { return sum[k] / static_cast<float>(height * width); }));
}

// Every input pixel is in one window.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) avg_pool_grad_kernel(Pool p, const void* dy, void* dx) {
  const Place<N> in(p, p.h, p.w);
  if (in.image >= p.images) return;
  const int oh = in.h / p.kernel, ow = in.w / p.kernel;
  const int pixels = local_length(oh, p.kernel, p.h) * local_length(ow, p.kernel, p.w);
  const Vec<T, N> gradient = load<T, N>(dy, in.at(p.out_h, p.out_w, oh, ow));
  store(dx, in.i, Vec<T, N>::make([&](int k) { return gradient.at(k) / static_cast<float>(pixels); }));
}

// Calls body.template operator()<T, N>(blocks), with a thread for every vector of `pixels` of each image.
template <typename Body>
void by_pixel(Type type, const Pool& p, int pixels, const Body& body) {
  dispatch(type, p.channels, [&]<typename T, int N>() {
    body.template operator()<T, N>(blocks_for(std::int64_t{p.images} * pixels * (p.channels / N)));
  });
}

}  // namespace

void max_pool(Type type, const Pool& p, const void* x, const float* affine, void* y, std::uint8_t* index,
              void* picked, cudaStream_t stream) {
  if (affine != nullptr && stem_pool(type, p, x, affine, y, index, picked, stream)) return;
  by_pixel(type, p, p.out_h * p.out_w, [&]<typename T, int N>(int blocks) {
    const auto kernel = affine != nullptr ? max_pool_kernel<T, N, true> : max_pool_kernel<T, N, false>;
    kernel<<<blocks, kThreads, 0, stream>>>(p, x, affine, y, index, picked);
  });
}

void max_pool_grad(Type type, const Pool& p, const void* dy, const std::uint8_t* index, void* dx,
                   cudaStream_t stream) {
  by_pixel(type, p, p.h * p.w, [&]<typename T, int N>(int blocks) {
    max_pool_grad_kernel<T, N><<<blocks, kThreads, 0, stream>>>(p, dy, index, dx);
  });
}

void avg_pool(Type type, int images, int pixels, int channels, const void* x, void* y, cudaStream_t stream) {
  dispatch(type, channels, [&]<typename T, int N>() {
    const int row_vectors = channels / N;
    const dim3 grid(static_cast<unsigned>(divide_up(row_vectors, 32)), static_cast<unsigned>(images));
    avg_pool_kernel<T, N><<<grid, kThreads, 0, stream>>>(pixels, row_vectors, x, y);
  });
}

void local_avg_pool(Type type, const Pool& p, const void* x, void* y, cudaStream_t stream) {
  by_pixel(type, p, p.out_h * p.out_w, [&]<typename T, int N>(int blocks) {
    local_avg_pool_kernel<T, N><<<blocks, kThreads, 0, stream>>>(p, x, y);
  });
}

void avg_pool_grad(Type type, const Pool& p, const void* dy, void* dx, cudaStream_t stream) {
  by_pixel(type, p, p.h * p.w, [&]<typename T, int N>(int blocks) {
    avg_pool_grad_kernel<T, N><<<blocks, kThreads, 0, stream>>>(p, dy, dx);
  });
}

}  // namespace redline::backend::cuda
