// The stem's max pool of 3x3, stride 2, pad 1, with the norm and the ReLU before it: forward, and backward
// through all three at once. Windows overlap: a block walks down a tile of an image, and rows wait for it in
// a ring in shared memory, each read from memory once.
#include <cuda_pipeline.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {
namespace {

constexpr int kTileThreads = 448;   // at most: 56 columns of 64 channels in 16 bits
constexpr int kTileBlocksEach = 2;  // on a multiprocessor

// Rows by columns of an image's pooled pixels, which a block walks down: a thread has a vector of a column.
struct Tile {
  std::int64_t image;
  int first_row, end_row, first_column, columns;
};

struct Tiles {
  int across, down;   // of an image
  int columns, rows;  // of a tile at most

  // `bytes_of` gives the shared memory that a block needs for so many columns.
  template <typename BytesOf>
  Tiles(const Pool& p, int row_vectors, const BytesOf& bytes_of) {
    // Few enough rows that all multiprocessors have several tiles, where a tile's first rows cost little.
    constexpr std::int64_t kFewest = 2, kMost = 16;
    const std::int64_t wanted = std::int64_t{multiprocessors()} * 8;
    across = static_cast<int>(divide_up(p.out_w, kTileThreads / row_vectors));
    const auto divide = [&] { columns = static_cast<int>(divide_up(p.out_w, across)); };
    for (divide(); columns > 1 && bytes_of(columns) > block_shared_bytes(); divide()) ++across;
    const std::int64_t all = std::int64_t{p.images} * across * p.out_h;
    down = static_cast<int>(divide_up(p.out_h, std::clamp(divide_up(all, wanted), kFewest, kMost)));
    rows = static_cast<int>(divide_up(p.out_h, down));
  }
  unsigned count(const Pool& p) const { return static_cast<unsigned>(p.images * down * across); }
  int threads(int row_vectors) const { return static_cast<int>(divide_up(columns * row_vectors, 32)) * 32; }

  REDLINE_DEVICE Tile at(const Pool& p, unsigned i) const {
    const int column = static_cast<int>(i % across) * columns,
              row = static_cast<int>(i / across % down) * rows;
    return {i / across / down, row, min(row + rows, p.out_h), column, min(columns, p.out_w - column)};
  }
};

// Starts a copy by all threads of a block. Those that wait for it must then synchronise with the others.
template <typename Vector>
REDLINE_DEVICE void begin_copy(Vector* to, const Vector* from, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
    __pipeline_memcpy_async(to + i, from + i, sizeof(Vector));
}

// --- Forward: relu(scale * y + bias), in 16-bit types ---
// The affine rises or falls with y, so the largest result comes from the largest or the smallest y. With
// signs flipped where it falls, maxima are found two at a time, and the affine is applied to the maxima only.

template <typename T>
using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

// As std::bit_cast, which does not take CUDA's types.
template <typename To, typename From>
REDLINE_DEVICE To bits_of(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
template <typename T>
REDLINE_DEVICE Two<T> two_of(std::uint32_t bits) {
  return bits_of<Two<T>>(bits);
}
// NaN if either is NaN.
template <typename T>
REDLINE_DEVICE std::uint32_t larger(std::uint32_t a, std::uint32_t b) {
#if __CUDA_ARCH__ >= 800
  return bits_of<std::uint32_t>(__hmax2_nan(two_of<T>(a), two_of<T>(b)));
#else
  const Two<T> second = two_of<T>(b);
  const std::uint32_t take = __hgt2_mask(second, two_of<T>(a)) | __hneu2_mask(second, second);
  return (b & take) | (a & ~take);
#endif
}

// Three rows or columns of a window along a side of the image: where one is outside, a neighbour stands in
// for it, under its own name.
struct Three {
  int at[3];    // in the image
  int name[3];  // 0 to 2, of the window
  REDLINE_DEVICE Three(int pooled, int size) {
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      at[k] = min(max(2 * pooled - 1 + k, 0), size - 1);
      name[k] = at[k] - (2 * pooled - 1);
    }
  }
};

// The result of a window: its value, the pixel that it comes from, and that pixel's y.
template <typename T>
struct Pooled {
  Vec<T, 8> out, raw;
  Vec<std::uint8_t, 8> where;

  // Channels 2k and 2k + 1, from the largest y and which pixels those are. Where nothing gets through the
  // ReLU, or all are equal, the first pixel wins, the one at the window's corner.
  REDLINE_DEVICE void set(int k, std::uint32_t most, std::uint32_t taps, std::uint32_t first,
                          std::uint32_t corner, const Lanes<8>& scale, const Lanes<8>& bias) {
    const auto largest = two_of<T>(most), other = two_of<T>(first);
    const T values[2] = {largest.x, largest.y}, corners[2] = {other.x, other.y};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int c = 2 * k + half;
      const float value = fmaf(to_float(values[half]), scale[c], bias[c]);
      out.set(c, value < 0.0F ? 0.0F : value);
      const bool equal = !(value > 0.0F) || scale[c] == 0.0F;
      where.v[c] = static_cast<std::uint8_t>(equal ? corner : taps >> 16 * half);
      raw.v[c] = equal ? corners[half] : values[half];
    }
  }
};

constexpr int kPixelRows = 7;  // of the ring: three that a window reads, and two pairs in flight

template <typename T>
__global__ void __launch_bounds__(kTileThreads, kTileBlocksEach)
    stem_pool_kernel(Pool p, Tiles tiles, const uint4* x, const float* affine, void* y, std::uint8_t* index,
                     void* picked) {
  begin_kernel();
  extern __shared__ __align__(16) std::byte memory[];
  auto* ring = reinterpret_cast<uint4*>(memory);
  const Tile tile = tiles.at(p, blockIdx.x);
  const int row_vectors = p.channels / 8;
  const int left = 2 * tile.first_column - 1;  // the pixel that rows of the ring begin with
  const int span = (2 * tiles.columns + 1) * row_vectors;
  const int from = max(left, 0), end = min(left + 2 * tile.columns + 1, p.w);
  const auto ring_row = [&](int h) { return ring + h % kPixelRows * span; };
  const auto fetch = [&](int h) {
    if (h < 0 || h >= p.h) return;
    begin_copy(ring_row(h) + (from - left) * row_vectors,
               x + ((tile.image * p.h + h) * p.w + from) * row_vectors, (end - from) * row_vectors);
  };
  const auto fetch_pair = [&](int oh) {
    if (oh < tile.end_row) {
      fetch(2 * oh);
      fetch(2 * oh + 1);
    }
    __pipeline_commit();
  };
  fetch(2 * tile.first_row - 1);
  fetch_pair(tile.first_row);
  fetch_pair(tile.first_row + 1);
  const int vector = static_cast<int>(threadIdx.x) % row_vectors;
  const int column = static_cast<int>(threadIdx.x) / row_vectors, ow = tile.first_column + column;
  const Lanes<8> scale(affine, vector * 8), bias(affine + p.channels, vector * 8);
  std::uint32_t flip[4];
#pragma unroll
  for (int k = 0; k < 4; ++k)
    flip[k] = (scale[2 * k] < 0.0F ? 0x00008000U : 0U) | (scale[2 * k + 1] < 0.0F ? 0x80000000U : 0U);
  const Three columns(ow, p.w);
  for (int oh = tile.first_row; oh < tile.end_row; ++oh) {
    __pipeline_wait_prior(1);
    __syncthreads();
    fetch_pair(oh + 2);
    if (column >= tile.columns) continue;
    const Three rows(oh, p.h);
    std::uint32_t first[4], best[4], taps[4];
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {
      const uint4 in = ring_row(rows.at[tap / 3])[(columns.at[tap % 3] - left) * row_vectors + vector];
      const std::uint32_t words[4] = {in.x ^ flip[0], in.y ^ flip[1], in.z ^ flip[2], in.w ^ flip[3]};
      const std::uint32_t name =
          0x00010001U * static_cast<unsigned>(3 * rows.name[tap / 3] + columns.name[tap % 3]);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (tap == 0) {
          first[k] = best[k] = words[k];
          taps[k] = name;
        } else {
          const std::uint32_t more = __hgt2_mask(two_of<T>(words[k]), two_of<T>(best[k]));
          taps[k] = (taps[k] & ~more) | (name & more);
          best[k] = larger<T>(best[k], words[k]);
        }
      }
    }
    const auto corner = static_cast<std::uint32_t>(3 * rows.name[0] + columns.name[0]);
    Pooled<T> pooled;
#pragma unroll
    for (int k = 0; k < 4; ++k)
      pooled.set(k, best[k] ^ flip[k], taps[k], first[k] ^ flip[k], corner, scale, bias);
    const std::int64_t at = ((tile.image * p.out_h + oh) * p.out_w + ow) * row_vectors + vector;
    store<T, 8>(y, at, pooled.out);
    if (index != nullptr) store<std::uint8_t, 8>(index, at, pooled.where);
    if (picked != nullptr) store<T, 8>(picked, at, pooled.raw);
  }
}

// --- Backward ---

// What the gradients of two by two pixels need: that of the four windows over them, and which of a window's
// nine pixels each belongs to.
template <typename T, int N>
struct Windows {
  static constexpr std::uint8_t kNone = 15;  // no pixel: the window does not exist
  Vec<T, N> gradient[4];
  Vec<std::uint8_t, N> index[4];

  REDLINE_DEVICE void take_none(int window) {
#pragma unroll
    for (int k = 0; k < N; ++k) index[window].v[k] = kNone;
  }

  // A window's gradients where they belong to the pixel at `position` of it; zero elsewhere.
  REDLINE_DEVICE Vec<T, N> tap(int window, int position) const {
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
  // Of pixel q, row by row.
  REDLINE_DEVICE Vec<T, N> at(int q) const {
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
  // Bytes made of the top bits of those that the selector names.
  template <unsigned kSelector>
  static REDLINE_DEVICE unsigned signs(unsigned word) {
    unsigned out;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(out) : "r"(word), "n"(kSelector));
    return out;
  }
  static REDLINE_DEVICE Vec<T, N> sum(const Vec<T, N>& a, const Vec<T, N>& b) {
    Vec<T, N> out;
    if constexpr (sizeof(T) == 2 && N == 8) {
#pragma unroll
      for (int k = 0; k < N; k += 2) {
        const auto both = __hadd2(Two<T>{a.v[k], a.v[k + 1]}, Two<T>{b.v[k], b.v[k + 1]});
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

// What a block has in shared memory: the norm's numbers, and rings of rows, those of the pooled gradient with
// one more column than the tile, and of the norm's input.
template <typename T, int N>
struct GradientRings {
  static constexpr int kPooledRows = 3;  // two that are read, and one in flight
  static constexpr int kPixelPairs = 2;  // one that is read, and one in flight
  static constexpr int kNumbers = 5;     // Slope's three, the gate's scale and bias
  int row_vectors, columns;

  __host__ __device__ std::size_t pooled_vectors() const {
    return static_cast<std::size_t>((columns + 1) * row_vectors);
  }
  __host__ __device__ std::size_t pixel_vectors() const {
    return static_cast<std::size_t>(2 * columns * row_vectors);
  }
  std::size_t bytes() const {
    return static_cast<std::size_t>(kNumbers * row_vectors * N) * sizeof(float) +
           kPixelPairs * 2 * pixel_vectors() * sizeof(Vec<T, N>) +
           kPooledRows * pooled_vectors() * (sizeof(Vec<T, N>) + sizeof(Vec<std::uint8_t, N>));
  }

  // Four channels of a number side by side for all vectors.
  REDLINE_DEVICE float4* numbers(std::byte* memory, int number, int four) const {
    return reinterpret_cast<float4*>(memory) + (number * (N / 4) + four) * row_vectors;
  }
  REDLINE_DEVICE Vec<T, N>* pixels(std::byte* memory, int i, int row) const {
    auto* first = reinterpret_cast<Vec<T, N>*>(numbers(memory, kNumbers, 0));
    return first + (i % kPixelPairs * 2 + row) * pixel_vectors();
  }
  REDLINE_DEVICE Vec<T, N>* gradients(std::byte* memory, int i) const {
    return pixels(memory, 0, 2 * kPixelPairs) + i % kPooledRows * pooled_vectors();
  }
  REDLINE_DEVICE Vec<std::uint8_t, N>* indices(std::byte* memory, int i) const {
    auto* first = reinterpret_cast<Vec<std::uint8_t, N>*>(pixels(memory, 0, 2 * kPixelPairs) +
                                                          kPooledRows * pooled_vectors());
    return first + i % kPooledRows * pooled_vectors();
  }
};

template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads, kTileBlocksEach)
    pooled_apply_kernel(PooledGradient from, Tiles tiles, float per_channel, NormGradApply args) {
  using Vector = Vec<T, N>;
  using Index = Vec<std::uint8_t, N>;
  begin_kernel();
  extern __shared__ __align__(16) std::byte memory[];
  const Pool& p = from.pool;
  const Tile tile = tiles.at(p, blockIdx.x);
  const int row_vectors = p.channels / N;
  const GradientRings<T, N> rings{row_vectors, tiles.columns};
  // Two rows of pixels, and the windows that begin in the second.
  const auto fetch_pooled = [&](int i) {
    if (i >= p.out_h) return;
    const std::int64_t at = ((tile.image * p.out_h + i) * p.out_w + tile.first_column) * row_vectors;
    const int count = min(tile.columns + 1, p.out_w - tile.first_column) * row_vectors;
    begin_copy(rings.gradients(memory, i), static_cast<const Vector*>(from.dy) + at, count);
    begin_copy(rings.indices(memory, i), reinterpret_cast<const Index*>(from.index) + at, count);
  };
  const auto pixel_at = [&](int i, int row) {
    return ((tile.image * p.h + 2 * i + row) * p.w + 2 * tile.first_column) * row_vectors;
  };
  const auto fetch = [&](int i) {
    for (int row = 0; row < 2; ++row)
      begin_copy(rings.pixels(memory, i, row), static_cast<const Vector*>(args.y) + pixel_at(i, row),
                 2 * tile.columns * row_vectors);
    fetch_pooled(i + 1);
    __pipeline_commit();
  };
  fetch_pooled(tile.first_row);
  fetch(tile.first_row);
  for (int c = static_cast<int>(threadIdx.x); c < p.channels; c += static_cast<int>(blockDim.x)) {
    const Slope slope(args, c, p.channels, per_channel);
    const float found[] = {slope.a, slope.b, slope.c, args.gate.affine[c], args.gate.affine[p.channels + c]};
    for (int number = 0; number < rings.kNumbers; ++number)
      reinterpret_cast<float*>(rings.numbers(memory, number, c % N / 4) + c / N)[c % 4] = found[number];
  }
  const int vector = static_cast<int>(threadIdx.x) % row_vectors;
  const int column = static_cast<int>(threadIdx.x) / row_vectors;
  for (int i = tile.first_row; i < tile.end_row; ++i) {
    __pipeline_wait_prior(0);
    __syncthreads();
    if (i + 1 < tile.end_row) fetch(i + 1);
    if (column >= tile.columns) continue;
    Windows<T, N> windows;
    Vector y[4], gradient[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int at = (column + q % 2) * row_vectors + vector;
      windows.gradient[q] = rings.gradients(memory, i + q / 2)[at];
      windows.index[q] = rings.indices(memory, i + q / 2)[at];
      if (i + q / 2 >= p.out_h || tile.first_column + column + q % 2 >= p.out_w) windows.take_none(q);
      y[q] = rings.pixels(memory, i, q / 2)[(2 * column + q % 2) * row_vectors + vector];
    }
#pragma unroll
    for (int q = 0; q < 4; ++q) gradient[q] = windows.at(q);
#pragma unroll
    for (int four = 0; four < N / 4; ++four) {
      Vec<float, 4> numbers[rings.kNumbers];
#pragma unroll
      for (int number = 0; number < rings.kNumbers; ++number)
        numbers[number] = load<float, 4>(rings.numbers(memory, number, four), vector);
#pragma unroll
      for (int q = 0; q < 4; ++q) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float value = y[q].at(4 * four + k);
          const bool open = fmaf(value, numbers[3].v[k], numbers[4].v[k]) > 0.0F;
          const float g = open ? gradient[q].at(4 * four + k) : 0.0F;
          y[q].set(4 * four + k, fmaf(numbers[0].v[k], g, fmaf(numbers[1].v[k], value, numbers[2].v[k])));
        }
      }
    }
#pragma unroll
    for (int q = 0; q < 4; ++q)
      store<T, N>(args.dy, pixel_at(i, q / 2) + (2 * column + q % 2) * row_vectors + vector, y[q]);
  }
}

// `bytes_of` as Tiles has it. The kernel's arguments are the pool, the tiles, and the others.
template <typename Kernel, typename BytesOf, typename OfPool, typename... Arguments>
void launch_tiles(Kernel kernel, const Pool& p, int row_vectors, const BytesOf& bytes_of, cudaStream_t stream,
                  const OfPool& pool, const Arguments&... arguments) {
  const Tiles tiles(p, row_vectors, bytes_of);
  const std::size_t bytes = bytes_of(tiles.columns);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  launch(kernel, {tiles.count(p), tiles.threads(row_vectors), bytes}, stream, pool, tiles, arguments...);
}

}  // namespace

bool stem_pool(Type type, const Pool& p, const void* x, const float* affine, void* y, std::uint8_t* index,
               void* picked, cudaStream_t stream) {
  if (type == Type::f32 || !is_stem_pool(p, 2)) return false;
  const int row_vectors = p.channels / 8;
  const auto bytes_of = [&](int columns) {
    return kPixelRows * static_cast<std::size_t>((2 * columns + 1) * row_vectors) * sizeof(uint4);
  };
  dispatch_narrow(type, [&]<typename T>() {
    launch_tiles(stem_pool_kernel<T>, p, row_vectors, bytes_of, stream, p, static_cast<const uint4*>(x),
                 affine, y, index, picked);
  });
  return true;
}

void pooled_norm_grad_apply(Type type, const PooledGradient& pooled, const NormGradApply& args,
                            cudaStream_t stream) {
  const Pool& p = pooled.pool;
  const float per_channel = static_cast<float>(std::int64_t{p.images} * p.h * p.w);
  dispatch(type, p.channels, [&]<typename T, int N>() {
    if constexpr (N > 1) {
      const int row_vectors = p.channels / N;
      const auto bytes_of = [&](int columns) { return GradientRings<T, N>{row_vectors, columns}.bytes(); };
      launch_tiles(pooled_apply_kernel<T, N>, p, row_vectors, bytes_of, stream, pooled, per_channel, args);
    }
  });
}

}  // namespace redline::backend::cuda
