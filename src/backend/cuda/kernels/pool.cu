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

// --- The stem's pool: 3x3, stride 2, pad 1, of relu(scale * y + bias), in 16-bit types ---
// The affine only grows or only falls with y, so the largest result is that of the largest or the smallest y:
// with signs flipped where it falls, two maxima are found at a time, and the affine is applied to them alone.

constexpr int kStrip = 3;           // output rows of a thread; the row between their windows is read once
constexpr int kStemBlocksEach = 2;  // on a multiprocessor: loads under way

template <typename T>
struct Halves;
template <>
struct Halves<__half> {
  using Two = __half2;
  static constexpr std::uint32_t kLowest = 0xFC00FC00U;  // minus infinity, twice
};
template <>
struct Halves<__nv_bfloat16> {
  using Two = __nv_bfloat162;
  static constexpr std::uint32_t kLowest = 0xFF80FF80U;
};

// Three pixels of a row as they are loaded: unconditionally, from the nearest pixel where one is outside, so
// that all are under way at once.
struct Loaded {
  uint4 pixel[3];
  bool inside[3];
  __device__ __forceinline__ Loaded(const Pool& p, const uint4* image, int h, int ow, int row_vectors) {
    const uint4* row = image + std::int64_t{min(max(h, 0), p.h - 1)} * p.w * row_vectors;
#pragma unroll
    for (int kw = 0; kw < 3; ++kw) {
      const int w = ow * 2 - 1 + kw;
      inside[kw] = h >= 0 && h < p.h && w >= 0 && w < p.w;
      pixel[kw] = row[min(max(w, 0), p.w - 1) * row_vectors];
    }
  }
};

// Eight channels of three pixels of a row, and the largest of the three.
template <typename T>
struct PixelRow {
  using Two = typename Halves<T>::Two;
  std::uint32_t pixel[3][4];
  std::uint32_t best[4];

  static __device__ __forceinline__ Two two(std::uint32_t bits) { return *reinterpret_cast<Two*>(&bits); }
  static __device__ __forceinline__ std::uint32_t larger(std::uint32_t a, std::uint32_t b) {
    Two most = __hmax2_nan(two(a), two(b));
    return *reinterpret_cast<std::uint32_t*>(&most);
  }

  PixelRow() = default;
  // What is outside loses.
  __device__ __forceinline__ PixelRow(const Loaded& from, const std::uint32_t (&flip)[4]) {
#pragma unroll
    for (int kw = 0; kw < 3; ++kw) {
      const uint4& in = from.pixel[kw];
      const std::uint32_t words[4] = {in.x, in.y, in.z, in.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) pixel[kw][k] = from.inside[kw] ? words[k] ^ flip[k] : Halves<T>::kLowest;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) best[k] = larger(larger(pixel[0][k], pixel[1][k]), pixel[2][k]);
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads, kStemBlocksEach)
    stem_pool_kernel(Pool p, const void* x, const float* affine, void* y, std::uint8_t* index, void* picked) {
  using Row = PixelRow<T>;
  const auto row_vectors = static_cast<unsigned>(p.channels / 8), width = static_cast<unsigned>(p.out_w);
  const auto strips = static_cast<unsigned>((p.out_h + kStrip - 1) / kStrip);
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= static_cast<unsigned>(p.images) * strips * width * row_vectors) return;
  const int vector = static_cast<int>(i % row_vectors), ow = static_cast<int>(i / row_vectors % width);
  const unsigned strip = i / row_vectors / width;
  const std::int64_t image = strip / strips;
  const int first = static_cast<int>(strip % strips) * kStrip;
  const Lanes<8> scale(affine, vector * 8), bias(affine + p.channels, vector * 8);
  std::uint32_t flip[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    flip[k] = (scale[2 * k] < 0.0F ? 0x00008000U : 0U) | (scale[2 * k + 1] < 0.0F ? 0x80000000U : 0U);
  }
  const uint4* pixels =
      static_cast<const uint4*>(x) + image * p.h * p.w * static_cast<int>(row_vectors) + vector;
  const auto fetch = [&](int h) { return Loaded(p, pixels, h, ow, static_cast<int>(row_vectors)); };
  Row rows[3];
  Loaded next[2] = {fetch(first * 2), fetch(first * 2 + 1)};
  rows[2] = Row(fetch(first * 2 - 1), flip);
#pragma unroll
  for (int strip_row = 0; strip_row < kStrip; ++strip_row) {
    const int oh = first + strip_row;
    if (oh >= p.out_h) break;
    rows[0] = rows[2];
    rows[1] = Row(next[0], flip);
    rows[2] = Row(next[1], flip);
    if (strip_row + 1 < kStrip) {
      next[0] = fetch(oh * 2 + 2);
      next[1] = fetch(oh * 2 + 3);
    }
    // Where nothing gets through the ReLU, or all are equal, the first pixel wins.
    const auto corner = static_cast<std::uint8_t>((oh == 0 ? 3 : 0) + (ow == 0 ? 1 : 0));
    Vec<T, 8> out, raw;
    Vec<std::uint8_t, 8> where;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const std::uint32_t best = Row::larger(Row::larger(rows[0].best[k], rows[1].best[k]), rows[2].best[k]);
      std::uint32_t taps = 0;
#pragma unroll
      for (int tap = 8; tap >= 0; --tap) {  // backwards: the first maximum wins
        const std::uint32_t same = __heq2_mask(Row::two(rows[tap / 3].pixel[tap % 3][k]), Row::two(best));
        taps = (taps & ~same) | (static_cast<std::uint32_t>(tap) * 0x00010001U & same);
      }
      const std::uint32_t above = ow == 0 ? rows[0].pixel[1][k] : rows[0].pixel[0][k];
      const std::uint32_t level = ow == 0 ? rows[1].pixel[1][k] : rows[1].pixel[0][k];
      const std::uint32_t first_pixel = oh == 0 ? level : above;
      const typename Row::Two most = Row::two(best ^ flip[k]), other = Row::two(first_pixel ^ flip[k]);
      const T values[2] = {most.x, most.y}, corners[2] = {other.x, other.y};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int c = 2 * k + half;
        const float value = fmaf(to_float(values[half]), scale[c], bias[c]);
        out.set(c, value < 0.0F ? 0.0F : value);
        const bool equal = !(value > 0.0F) || scale[c] == 0.0F;
        where.v[c] = equal ? corner : static_cast<std::uint8_t>(taps >> 16 * half);
        raw.v[c] = equal ? corners[half] : values[half];
      }
    }
    const std::int64_t at = ((image * p.out_h + oh) * p.out_w + ow) * (p.channels / 8) + vector;
    store<T, 8>(y, at, out);
    if (index != nullptr) store<std::uint8_t, 8>(index, at, where);
    if (picked != nullptr) store<T, 8>(picked, at, raw);
  }
}

bool is_stem_pool(const Pool& p) {
  return p.kernel == 3 && p.stride == 2 && p.pad == 1 && p.channels % 8 == 0 &&
         std::int64_t{p.images} * (p.out_h + kStrip) * p.out_w * p.channels < std::int64_t{1} << 34;
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

int blocks_for(std::int64_t vectors) { return static_cast<int>(divide_up(vectors, kThreads)); }

}  // namespace

void max_pool(Type type, const Pool& p, const void* x, const float* affine, void* y, std::uint8_t* index,
              void* picked, cudaStream_t stream) {
  dispatch(type, p.channels, [&]<typename T, int N>() {
    if constexpr (sizeof(T) == 2) {
      if (affine != nullptr && is_stem_pool(p)) {
        const std::int64_t strips = std::int64_t{p.images} * divide_up(p.out_h, kStrip);
        stem_pool_kernel<T><<<blocks_for(strips * p.out_w * (p.channels / 8)), kThreads, 0, stream>>>(
            p, x, affine, y, index, picked);
        return;
      }
    }
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

}  // namespace redline::backend::cuda
