// The stem's backward: max pool, ReLU and norm at once.
#include <cstring>
#include <type_traits>

#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {
namespace {

// Two by two pixels at (2i, 2j): what their gradients need lies in four windows, (i, j) to (i + 1, j + 1).
struct PixelBlock {
  std::int64_t image;
  int i, j;

  __device__ __forceinline__ PixelBlock(const Pool& p, unsigned row) {
    const auto width = static_cast<unsigned>(p.out_w), height = static_cast<unsigned>(p.out_h);
    j = static_cast<int>(row % width);
    i = static_cast<int>(row / width % height);
    image = row / width / height;
  }
  // Vector of pixel q (row by row) of the block.
  __device__ __forceinline__ std::int64_t at(const Pool& p, int q, int row_vectors, int vector) const {
    return ((image * p.h + 2 * i + q / 2) * p.w + 2 * j + q % 2) * row_vectors + vector;
  }
};

// The gradients of a block's four windows and which of a window's nine pixels each belongs to.
template <typename T, int N>
struct Windows {
  static constexpr std::uint8_t kNone = 15;  // no pixel: the window does not exist
  Vec<T, N> gradient[4];
  Vec<std::uint8_t, N> index[4];

  __device__ __forceinline__ Windows(const PooledGradient& from, const PixelBlock& block, int row_vectors,
                                     int vector) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int oh = block.i + q / 2, ow = block.j + q % 2;
      const bool there = oh < from.pool.out_h && ow < from.pool.out_w;
      const std::int64_t at = ((block.image * from.pool.out_h + (there ? oh : block.i)) * from.pool.out_w +
                               (there ? ow : block.j)) *
                                  row_vectors +
                              vector;
      gradient[q] = load<T, N>(from.dy, at);
      index[q] = load<std::uint8_t, N>(from.index, at);
      if (!there) {
#pragma unroll
        for (int k = 0; k < N; ++k) index[q].v[k] = kNone;
      }
    }
  }

  // A window's gradients where they belong to the pixel at `position` of it; zero elsewhere.
  __device__ __forceinline__ Vec<T, N> tap(int window, int position) const {
    Vec<T, N> found;
    if constexpr (sizeof(T) == 2 && N == 8) {
      const auto bytes = bits_of<uint2>(index[window]);
      const auto words = bits_of<uint4>(gradient[window]);
      // Bytes are below 16: the top bit of a sum is clear where they are equal. It is spread over an element.
      const unsigned same = 0x01010101U * static_cast<unsigned>(position);
      const unsigned low = (bytes.x ^ same) + 0x7F7F7F7FU, high = (bytes.y ^ same) + 0x7F7F7F7FU;
      found = bits_of<Vec<T, N>>(uint4{words.x & ~signs<0x9988>(low), words.y & ~signs<0xBBAA>(low),
                                       words.z & ~signs<0x9988>(high), words.w & ~signs<0xBBAA>(high)});
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k)
        found.set(k, index[window].v[k] == position ? gradient[window].at(k) : 0.0F);
    }
    return found;
  }
  // Of pixel q of the block.
  __device__ __forceinline__ Vec<T, N> at(int q) const {
    switch (q) {
      case 0:
        return tap(0, 4);
      case 1:
        return sum(tap(0, 5), tap(1, 3));
      case 2:
        return sum(tap(0, 7), tap(2, 1));
      default:
        return sum(sum(tap(0, 8), tap(1, 6)), sum(tap(2, 2), tap(3, 0)));
    }
  }

 private:
  template <typename To, typename From>
  static __device__ __forceinline__ To bits_of(const From& from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
  }
  // Bytes made of the top bits of those that the selector names.
  template <unsigned kSelector>
  static __device__ __forceinline__ unsigned signs(unsigned word) {
    unsigned out;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(out) : "r"(word), "n"(kSelector));
    return out;
  }
  static __device__ __forceinline__ Vec<T, N> sum(const Vec<T, N>& a, const Vec<T, N>& b) {
    Vec<T, N> out;
    if constexpr (sizeof(T) == 2 && N == 8) {
      using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
#pragma unroll
      for (int k = 0; k < N; k += 2) {
        const Two both = __hadd2(Two{a.v[k], a.v[k + 1]}, Two{b.v[k], b.v[k + 1]});
        out.v[k] = both.x;
        out.v[k + 1] = both.y;
      }
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) out.set(k, a.at(k) + b.at(k));
    }
    return out;
  }
};

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    pooled_apply_kernel(PooledGradient from, float per_channel, NormGradApply args) {
  begin_kernel();
  const int row_vectors = from.pool.channels / N, channels = from.pool.channels;
  const std::int64_t rows = std::int64_t{from.pool.images} * from.pool.out_h * from.pool.out_w;
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int vector = static_cast<int>(first % row_vectors);
  const NormSlope<N> slope(args, vector * N, channels, per_channel);
  const Lanes<N> scale(args.gate.affine, vector * N), bias(args.gate.affine + channels, vector * N);
  for (std::int64_t at = first; at < rows * row_vectors; at += stride) {
    const PixelBlock block(from.pool, static_cast<unsigned>(at) / static_cast<unsigned>(row_vectors));
    Vec<T, N> y[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) y[q] = load<T, N>(args.y, block.at(from.pool, q, row_vectors, vector));
    const Windows<T, N> windows(from, block, row_vectors, vector);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const Vec<T, N> arriving = windows.at(q);
      Vec<T, N> dy;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float value = y[q].at(k);
        const float gradient = fmaf(value, scale[k], bias[k]) > 0.0F ? arriving.at(k) : 0.0F;
        dy.set(k, slope.at(k, gradient, value));
      }
      store<T, N>(args.dy, block.at(from.pool, q, row_vectors, vector), dy);
    }
  }
}

}  // namespace

bool PooledGradient::possible(const Pool& p, Type type) {
  return p.kernel == 3 && p.stride == 2 && p.pad == 1 && p.h == 2 * p.out_h && p.w == 2 * p.out_w &&
         p.channels % (type == Type::f32 ? 4 : 8) == 0 &&
         std::int64_t{p.images} * p.out_h * p.out_w * p.channels < std::int64_t{1} << 32;
}

void pooled_norm_grad_apply(Type type, const PooledGradient& pooled, const NormGradApply& args,
                            cudaStream_t stream) {
  const std::int64_t blocks = std::int64_t{pooled.pool.images} * pooled.pool.out_h * pooled.pool.out_w;
  const float per_channel = static_cast<float>(blocks) * 4.0F;
  dispatch(type, pooled.pool.channels, [&]<typename T, int N>() {
    const int row_vectors = pooled.pool.channels / N;
    const int grid = grid_for(blocks * row_vectors, row_vectors, 2);
    launch(pooled_apply_kernel<T, N>, {static_cast<unsigned>(grid)}, stream, pooled, per_channel, args);
  });
}

}  // namespace redline::backend::cuda
