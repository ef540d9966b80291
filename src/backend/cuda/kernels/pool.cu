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

// --- The stem's pool: 3x3, stride 2, pad 1, of relu(scale * y + bias), in 16-bit types
// -------------------------- The affine only grows or only falls with y, so the largest result is that of the
// largest or the smallest y: y's bits, turned into a number that sorts as the result does, with the window's
// tap behind them, make a key, and one integer maximum keeps value and place.

constexpr int kStrip = 4;  // output rows of a thread; a row between two windows is read once for both

// Two 16-bit floats, each as an unsigned number of the same order.
__device__ __forceinline__ std::uint32_t sortable(std::uint32_t pair) {
  const std::uint32_t negative = (pair >> 15 & 0x00010001U) * 0x7FFFU;
  return pair ^ (negative | 0x80008000U);
}

__device__ __forceinline__ std::uint16_t from_sortable(std::uint32_t number) {
  return static_cast<std::uint16_t>(number ^ ((number & 0x8000U) != 0U ? 0x8000U : 0xFFFFU));
}

// The best of three pixels of a row: the sortable number, then two bits that are larger the further left.
struct RowKeys {
  std::uint32_t key[8];
};

// Loads are unconditional, from the nearest pixel, so that all are under way at once; what is outside loses.
__device__ __forceinline__ RowKeys row_keys(const Pool& p, const void* x, std::int64_t image, int h, int ow,
                                            int row_vectors, int vector, const std::uint32_t (&flip)[4]) {
  const bool row = h >= 0 && h < p.h;
  const std::int64_t from = (image * p.h + min(max(h, 0), p.h - 1)) * p.w;
  uint4 in[3];
#pragma unroll
  for (int kw = 0; kw < 3; ++kw) {
    const int w = min(max(ow * 2 - 1 + kw, 0), p.w - 1);
    in[kw] = static_cast<const uint4*>(x)[(from + w) * row_vectors + vector];
  }
  RowKeys best{};
#pragma unroll
  for (int kw = 0; kw < 3; ++kw) {
    const bool there = row && ow * 2 - 1 + kw >= 0 && ow * 2 - 1 + kw < p.w;
    const std::uint32_t kept = there ? ~0U : 0U, place = there ? static_cast<std::uint32_t>(2 - kw) : 0U;
    const std::uint32_t pairs[4] = {in[kw].x, in[kw].y, in[kw].z, in[kw].w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const std::uint32_t number = (sortable(pairs[k]) ^ flip[k]) & kept;
      best.key[2 * k] = max(best.key[2 * k], number << 16 | place);
      best.key[2 * k + 1] = max(best.key[2 * k + 1], (number & 0xFFFF0000U) | place);
    }
  }
  return best;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    stem_pool_kernel(Pool p, const void* x, const float* affine, void* y, std::uint8_t* index) {
  const int row_vectors = p.channels / 8, strips = (p.out_h + kStrip - 1) / kStrip;
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= std::int64_t{p.images} * strips * p.out_w * row_vectors) return;
  const int vector = static_cast<int>(i % row_vectors), ow = static_cast<int>(i / row_vectors % p.out_w);
  const std::int64_t strip = i / row_vectors / p.out_w;
  const std::int64_t image = strip / strips;
  const int first = static_cast<int>(strip % strips) * kStrip;
  const Lanes<8> scale(affine, vector * 8), bias(affine + p.channels, vector * 8);
  std::uint32_t flip[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    flip[k] = (scale[2 * k] < 0.0F ? 0x0000FFFFU : 0U) | (scale[2 * k + 1] < 0.0F ? 0xFFFF0000U : 0U);
  }
  RowKeys above = row_keys(p, x, image, first * 2 - 1, ow, row_vectors, vector, flip);
#pragma unroll
  for (int oh = first; oh < first + kStrip; ++oh) {
    if (oh >= p.out_h) break;
    const RowKeys middle = row_keys(p, x, image, oh * 2, ow, row_vectors, vector, flip);
    const RowKeys below = row_keys(p, x, image, oh * 2 + 1, ow, row_vectors, vector, flip);
    Vec<T, 8> out;
    Vec<std::uint8_t, 8> where;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      // Two more bits say the row; the first maximum wins.
      const std::uint32_t best = max(max(above.key[k] | 8U, middle.key[k] | 4U), below.key[k]);
      const std::uint32_t number = (best >> 16) ^ (scale[k] < 0.0F ? 0xFFFFU : 0U);
      const std::uint16_t bits = from_sortable(number);
      const float value = fmaf(to_float(*reinterpret_cast<const T*>(&bits)), scale[k], bias[k]);
      out.set(k, value < 0.0F ? 0.0F : value);
      // Where all are equal after the affine and the ReLU, the first pixel wins.
      const bool equal = !(value > 0.0F) || scale[k] == 0.0F;
      where.v[k] = equal ? static_cast<std::uint8_t>((oh == 0 ? 3 : 0) + (ow == 0 ? 1 : 0))
                         : static_cast<std::uint8_t>((2 - (best >> 2 & 3U)) * 3 + 2 - (best & 3U));
    }
    const std::int64_t at = ((image * p.out_h + oh) * p.out_w + ow) * row_vectors + vector;
    store<T, 8>(y, at, out);
    if (index != nullptr) store<std::uint8_t, 8>(index, at, where);
    above = below;
  }
}

bool is_stem_pool(const Pool& p) {
  return p.kernel == 3 && p.stride == 2 && p.pad == 1 && p.channels % 8 == 0;
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
    if constexpr (sizeof(T) == 2) {
      if (affine != nullptr && is_stem_pool(p)) {
        const std::int64_t strips = std::int64_t{p.images} * divide_up(p.out_h, kStrip);
        stem_pool_kernel<T><<<blocks_for(strips * p.out_w * (p.channels / 8)), kThreads, 0, stream>>>(
            p, x, affine, y, index);
        return;
      }
    }
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
