#include "backend/cuda/kernels/pointwise.h"

#include <algorithm>
#include <array>
#include <optional>

#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/tensor_map.h"
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {
namespace {

// A block keeps one or two strips of 64 columns of b in shared memory and walks down the rows, 128 at a time:
// one warp feeds two rings by the copy engine (64-wide pieces of a; tiles of y and of the other gradient),
// two groups of four warps each take 64 rows. The result is written over a tile of the ring and stored from
// there. Sums stay in registers until the walk ends.
constexpr int kTile = 64;   // columns of a block; also the depth of a piece of a
constexpr int kRows = 128;  // rows of a tile
constexpr int kGroup = 128;
constexpr int kBlock = 3 * kGroup;  // a group for the feeding warp: registers are given by group
constexpr int kTileBytes = kRows * kTile * 2;
constexpr int kMostStages = 8;
constexpr int kMostEach = 2;  // blocks of one strip on a multiprocessor, as many as registers allow

struct Rings {
  int a_stages, tile_stages;
};
using Way = PointwiseLaunch::Way;

struct Barriers {
  std::uint64_t b_full;
  std::uint64_t a_full[kMostStages], a_empty[kMostStages];
  std::uint64_t tile_full[kMostStages], tile_empty[kMostStages];
};

// Tiles of a stage of the second ring.
template <Epilogue kEpilogue>
constexpr int kTilesOf = kEpilogue == Epilogue::joined ? 2 : 1;

std::size_t shared_bytes(const Pointwise& work, const Way& way, const Rings& rings) {
  const int tiles = work.epilogue == Epilogue::joined ? kTilesOf<Epilogue::joined> : 1;
  return 1024 + static_cast<std::size_t>(work.k) * static_cast<std::size_t>(way.strips) * kTile * 2 +
         static_cast<std::size_t>(rings.a_stages + rings.tile_stages * tiles) * kTileBytes;
}

#ifdef REDLINE_HOPPER

using hopper::Cursor;
using hopper::Pair;

// What the epilogue knows of a strip's columns.
struct Columns {
  float mean[kTile], scale[kTile], bias[kTile];
};

template <typename T, Epilogue kEpilogue, int kStrips>
__device__ void produce(const Pointwise& work, Rings rings, const CUtensorMap& a, const CUtensorMap& b,
                        const CUtensorMap& y, const CUtensorMap& other, std::byte* b_at, std::byte* a_at,
                        std::byte* tile_at, Barriers& bars, int column, int first, int stride, int tiles) {
  using namespace hopper;
  constexpr int kTiles = kTilesOf<kEpilogue>;
  const int pieces = work.k / kTile;
  barrier_expect(&bars.b_full, static_cast<unsigned>(work.k) * kStrips * kTile * 2);
  for (int i = 0; i < pieces * kStrips; ++i) {
    std::byte* to = b_at + i * kTile * kTile * 2;
    const int k = i / kStrips * kTile, n = column + i % kStrips * kTile;
    if constexpr (kEpilogue == Epilogue::sums) {
      load_tile(to, b, k, n, &bars.b_full);
    } else {
      load_tile(to, b, n, k, &bars.b_full);
    }
  }
  Cursor a_ring, tile_ring;
  for (int tile = first; tile < tiles; tile += stride) {
    for (int piece = 0; piece < pieces; ++piece) {
      barrier_wait(&bars.a_empty[a_ring.stage], a_ring.parity ^ 1U);
      barrier_expect(&bars.a_full[a_ring.stage], kTileBytes);
      load_tile(a_at + a_ring.stage * kTileBytes, a, piece * kTile, tile * kRows, &bars.a_full[a_ring.stage]);
      a_ring.next(rings.a_stages);
    }
    if constexpr (kEpilogue != Epilogue::sums) {
      for (int strip = 0; strip < kStrips; ++strip) {
        std::uint64_t* full = &bars.tile_full[tile_ring.stage];
        barrier_wait(&bars.tile_empty[tile_ring.stage], tile_ring.parity ^ 1U);
        barrier_expect(full, kTiles * kTileBytes);
        std::byte* to = tile_at + tile_ring.stage * kTiles * kTileBytes;
        load_tile(to, y, column + strip * kTile, tile * kRows, full);
        if constexpr (kTiles > 1)
          load_tile(to + kTileBytes, other, column + strip * kTile, tile * kRows, full);
        tile_ring.next(rings.tile_stages);
      }
    }
  }
}

// The bits of 64 columns for this thread's two rows.
struct MaskBits {
  uint2 rows[2] = {};
  __device__ __forceinline__ void load(const Pointwise& work, std::int64_t row, int column) {
    const auto* words = reinterpret_cast<const uint2*>(work.mask);
    if (row < work.rows) rows[0] = words[(row * work.n + column) / 64];
    if (row + 8 < work.rows) rows[1] = words[((row + 8) * work.n + column) / 64];
  }
  // Brings the first of this thread's columns of every eight to a place that is known when compiling.
  __device__ __forceinline__ void align(int lane_column) {
    for (uint2& row : rows) row = {row.x >> lane_column, row.y >> lane_column};
  }
  // Of the j-th eight columns, in the lowest two bits and others above.
  __device__ __forceinline__ unsigned of(int half, int j) const {
    return (j < 4 ? rows[half].x : rows[half].y) >> 8 * (j % 4);
  }
};

template <typename T, Epilogue kEpilogue>
struct Sums {
  float first[kTile / 4] = {},
                      second[kTile / 4] = {};  // second: of products with y, its mean not yet taken off

  // Turns two neighbouring results of a row into what is stored.
  __device__ __forceinline__ Pair<T> take(float x, float y, int j, int lane_column, const Columns& columns,
                                          float2 input, float2 other, unsigned bits) {
    if constexpr (kEpilogue == Epilogue::sums) {
      const Pair<T> stored = Pair<T>::of(x, y);
      const float2 value = stored.floats();
      add(j, value, value);
      return stored;
    } else {
      const int c = 8 * j + lane_column;
      if constexpr (kEpilogue == Epilogue::gated) {
        if (fmaf(input.x, columns.scale[c], columns.bias[c]) <= 0.0F) x = 0.0F;
        if (fmaf(input.y, columns.scale[c + 1], columns.bias[c + 1]) <= 0.0F) y = 0.0F;
      } else {
        x = (bits & 1U) != 0U ? x + other.x : 0.0F;
        y = (bits & 2U) != 0U ? y + other.y : 0.0F;
      }
      add(j, {x, y}, input);
      return Pair<T>::of(x, y);
    }
  }

  __device__ __forceinline__ void add(int j, float2 value, float2 factor) {
    first[2 * j] += value.x;
    first[2 * j + 1] += value.y;
    second[2 * j] = fmaf(value.x, factor.x, second[2 * j]);
    second[2 * j + 1] = fmaf(value.y, factor.y, second[2 * j + 1]);
  }
};

// Adds the sums of all threads of the block and, in the last block of a column, of all blocks: in a fixed
// order, so that results do not depend on timing.
template <typename T, Epilogue kEpilogue>
__device__ void finish(const Pointwise& work, Sums<T, kEpilogue>& sums, const Columns& columns,
                       ColumnScratch& scratch, ReduceSpace space, int column) {
  if constexpr (kEpilogue != Epilogue::sums) {
#pragma unroll
    for (int i = 0; i < kTile / 4; ++i)
      sums.second[i] -= columns.mean[i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2] * sums.first[i];
  }
  double sum = 0.0;
  if (!sum_columns(
          sums.first, sums.second, scratch, column / kTile, static_cast<int>(blockIdx.y),
          static_cast<int>(gridDim.y), space, [] { hopper::sync_group(1, 2 * kGroup); }, sum)) {
    return;
  }
  const int t = static_cast<int>(threadIdx.x), c = column + t % kTile;
  const bool is_first = t < kTile;
  if (kEpilogue != Epilogue::sums && !is_first) sum *= work.saved[work.n + c];
  (is_first ? work.first : work.second)[c] = static_cast<float>(sum);
}

template <typename T, Epilogue kEpilogue, int kStrips>
__device__ void consume(const Pointwise& work, Rings rings, const CUtensorMap& out, std::byte* b_at,
                        std::byte* a_at, std::byte* tile_at, Barriers& bars, const Columns* columns,
                        Sums<T, kEpilogue> (&sums)[kStrips], int column, int first_tile, int stride,
                        int tiles) {
  using namespace hopper;
  constexpr int kTiles = kTilesOf<kEpilogue>;
  constexpr bool kForward = kEpilogue == Epilogue::sums;
  const int group = threadIdx.x / kGroup, lane = threadIdx.x % 32;
  const int row = group * 64 + threadIdx.x % kGroup / 32 * 16 + lane / 4;  // of the tile; and the one 8 below
  const bool leader = threadIdx.x % kGroup == 0;
  const int pieces = work.k / kTile;
  barrier_wait(&bars.b_full, 0);
  Cursor a_ring, tile_ring;
  int release = -1;  // the tile stage whose store may still be read
  MaskBits mask[kStrips], next_mask[kStrips];
  const auto fetch_masks = [&](int tile) {
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip)
      next_mask[strip].load(work, std::int64_t{tile} * kRows + row, column + strip * kTile);
  };
  if constexpr (kEpilogue == Epilogue::joined) fetch_masks(first_tile);
  for (int tile = first_tile; tile < tiles; tile += stride) {
    float d[kStrips * 32];  // of one strip after the other
    int held = -1;          // the stage that the products under way read
    for (int piece = 0; piece < pieces; ++piece) {
      barrier_wait(&bars.a_full[a_ring.stage], a_ring.parity);
      const std::byte* a_rows = a_at + a_ring.stage * kTileBytes + group * 64 * 128;
      matrix_begin();
#pragma unroll
      for (int step = 0; step < kTile / 16; ++step) {
        // The strips of a piece of b lie one after the other: one product takes all their columns.
        const std::byte* b_piece = b_at + piece * kStrips * kTile * kTile * 2;
        const std::uint64_t b = kForward ? matrix(b_piece + step * 32, 16, 1024)
                                         : matrix(b_piece + step * 2048, kTile * kTile * 2, 1024);
        multiply<T, !kForward>(d, matrix(a_rows + step * 32, 16, 1024), b, piece + step > 0);
      }
      matrix_commit();
      if (held >= 0) {
        matrix_wait<1>();
        if (leader) barrier_arrive(&bars.a_empty[held]);
      }
      held = a_ring.stage;
      a_ring.next(rings.a_stages);
    }
    if constexpr (kEpilogue == Epilogue::joined) {
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
        mask[strip] = next_mask[strip];
        mask[strip].align(lane % 4 * 2);
      }
      if (tile + stride < tiles) fetch_masks(tile + stride);
    }
    matrix_wait<0>();
    if (leader) barrier_arrive(&bars.a_empty[held]);
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      if constexpr (kForward) {
        if (leader) wait_stores_read<1>();  // with two stages or more, this one is free again
        sync_group(2 + group, kGroup);
      } else {
        barrier_wait(&bars.tile_full[tile_ring.stage], tile_ring.parity);
      }
      std::byte* y_tile = tile_at + tile_ring.stage * kTiles * kTileBytes;
      std::byte* other_tile = y_tile + (kTiles - 1) * kTileBytes;
      // Many reads at once, then the work: what is written might be what a later read is for, for all the
      // compiler knows, so it keeps their order.
      constexpr int kDeep = kStrips == 1 ? 2 : 4;
#pragma unroll
      for (int begin = 0; begin < kTile / 8; begin += kDeep) {
        Pair<T> inputs[kDeep][2] = {}, others[kDeep][2] = {};
        // The row, and the one eight below: the same swizzle.
        const auto place = [&](int j, int half) {
          return (row + 8 * half) * 128 + ((j ^ (row & 7)) << 4) + lane % 4 * 4;
        };
#pragma unroll
        for (int i = 0; i < 2 * kDeep; ++i) {
          const int at = place(begin + i / 2, i % 2);
          if constexpr (!kForward) inputs[i / 2][i % 2] = *reinterpret_cast<const Pair<T>*>(y_tile + at);
          if constexpr (kEpilogue == Epilogue::joined)
            others[i / 2][i % 2] = *reinterpret_cast<const Pair<T>*>(other_tile + at);
        }
#pragma unroll
        for (int i = 0; i < 2 * kDeep; ++i) {
          const int j = begin + i / 2, half = i % 2;
          const unsigned bits = kEpilogue == Epilogue::joined ? mask[strip].of(half, j) : 0U;
          *reinterpret_cast<Pair<T>*>(other_tile + place(j, half)) = sums[strip].take(
              d[32 * strip + 4 * j + 2 * half], d[32 * strip + 4 * j + 2 * half + 1], j, lane % 4 * 2,
              columns[strip], inputs[i / 2][half].floats(), others[i / 2][half].floats(), bits);
        }
      }
      fence_async();
      sync_group(2 + group, kGroup);
      if (leader) {
        store_tile(out, column + strip * kTile, tile * kRows + group * 64, other_tile + group * 64 * 128);
        commit_stores();
        if constexpr (!kForward) {
          wait_stores_read<1>();
          if (release >= 0) barrier_arrive(&bars.tile_empty[release]);
          release = tile_ring.stage;
        }
      }
      tile_ring.next(rings.tile_stages);
    }
  }
  if (leader) wait_stores();
}

#endif

template <typename T, Epilogue kEpilogue, int kStrips>
__global__ void __launch_bounds__(kBlock, kStrips == 1 ? kMostEach : 1)
    pointwise_kernel(const __grid_constant__ Pointwise work, Rings rings,
                     const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                     const __grid_constant__ CUtensorMap y, const __grid_constant__ CUtensorMap other,
                     const __grid_constant__ CUtensorMap out, ReduceSpace space) {
#ifdef REDLINE_HOPPER
  using namespace hopper;
  extern __shared__ std::byte dynamic[];
  __shared__ Barriers bars;
  __shared__ Columns columns[kStrips];
  __shared__ ColumnScratch scratch;
  std::byte* b_at = aligned(dynamic);
  std::byte* a_at = b_at + std::int64_t{work.k} * kStrips * kTile * 2;
  std::byte* tile_at = a_at + rings.a_stages * kTileBytes;
  const int column = static_cast<int>(blockIdx.x) * kStrips * kTile;
  const int first = static_cast<int>(blockIdx.y), stride = static_cast<int>(gridDim.y);
  const int tiles = static_cast<int>((work.rows + kRows - 1) / kRows);

  if (threadIdx.x == 0) {
    barrier_init(&bars.b_full, 1);
    for (int i = 0; i < kMostStages; ++i) {
      barrier_init(&bars.a_full[i], 1);
      barrier_init(&bars.a_empty[i], 2);
      barrier_init(&bars.tile_full[i], 1);
      barrier_init(&bars.tile_empty[i], 2);
    }
    publish_barriers();
  }
  begin_kernel();
  if (kEpilogue != Epilogue::sums && threadIdx.x < kStrips * kTile) {
    const int c = column + static_cast<int>(threadIdx.x), at = static_cast<int>(threadIdx.x) % kTile;
    Columns& of = columns[threadIdx.x / kTile];
    of.mean[at] = work.saved[c];
    if constexpr (kEpilogue == Epilogue::gated) {
      of.scale[at] = work.affine[c];
      of.bias[at] = work.affine[work.n + c];
    }
  }
  __syncthreads();
  // Of a thread: as many as the two groups of a block, or of two blocks, can have when the third keeps few.
  constexpr int kFew = 24, kMany = kStrips == 1 ? 104 : 232;
  if (threadIdx.x >= 2 * kGroup) {
    give_registers<kFew>();
    if (threadIdx.x == 2 * kGroup) {
      produce<T, kEpilogue, kStrips>(work, rings, a, b, y, other, b_at, a_at, tile_at, bars, column, first,
                                     stride, tiles);
    }
    return;
  }
  take_registers<kMany>();
  Sums<T, kEpilogue> sums[kStrips];
  consume<T, kEpilogue, kStrips>(work, rings, out, b_at, a_at, tile_at, bars, columns, sums, column, first,
                                 stride, tiles);
#pragma unroll
  for (int strip = 0; strip < kStrips; ++strip) {
    if (strip > 0) sync_group(1, 2 * kGroup);  // the scratch memory is used again
    finish(work, sums[strip], columns[strip], scratch, space, column + strip * kTile);
  }
#endif
}

constexpr std::size_t kStaticShared = 6 << 10;  // of the kernel itself, and what the system keeps

// Rings as deep as shared memory allows with so many blocks on a multiprocessor; none when two stages do not
// fit.
std::optional<Rings> choose_rings(const Pointwise& work, const cudaDeviceProp& device, const Way& way) {
  const std::size_t share = device.sharedMemPerMultiprocessor / static_cast<std::size_t>(way.blocks_each);
  const std::size_t each = std::min(share, device.sharedMemPerBlockOptin) - kStaticShared - 1024;
  Rings rings{2, 2};
  if (shared_bytes(work, way, rings) > each) return std::nullopt;
  for (bool grown = true; grown;) {
    grown = false;
    for (int* stages : {&rings.tile_stages, &rings.a_stages}) {
      if (*stages == kMostStages || (stages == &rings.tile_stages && *stages == 4)) continue;
      ++*stages;
      if (shared_bytes(work, way, rings) <= each) {
        grown = true;
      } else {
        --*stages;
      }
    }
  }
  return rings;
}

// Calls body(kernel) with the kernel of a work's type and epilogue.
template <typename T, int kStrips, typename Body>
void with_kernel(Epilogue epilogue, const Body& body) {
  switch (epilogue) {
    case Epilogue::sums:
      return body(pointwise_kernel<T, Epilogue::sums, kStrips>);
    case Epilogue::gated:
      return body(pointwise_kernel<T, Epilogue::gated, kStrips>);
    case Epilogue::joined:
      return body(pointwise_kernel<T, Epilogue::joined, kStrips>);
  }
}
template <typename Body>
void with_kernel(const Pointwise& work, const Way& way, const Body& body) {
  if (work.type == Type::f16) {
    way.strips == 1 ? with_kernel<__half, 1>(work.epilogue, body)
                    : with_kernel<__half, 2>(work.epilogue, body);
  } else {
    way.strips == 1 ? with_kernel<__nv_bfloat16, 1>(work.epilogue, body)
                    : with_kernel<__nv_bfloat16, 2>(work.epilogue, body);
  }
}

}  // namespace

std::vector<Way> PointwiseLaunch::ways(const Pointwise& work, const cudaDeviceProp& device) {
  if (device.major != 9 || work.type == Type::f32 || work.rows < 1) return {};
  if (work.k % kTile != 0 || work.n % kTile != 0 || work.n / kTile > static_cast<int>(kReduceCounters)) {
    return {};
  }
  std::vector<Way> found;
  for (const Way& way : {Way{1, 1}, Way{kMostEach, 1}, Way{1, 2}}) {
    if (work.n % (way.strips * kTile) == 0 && choose_rings(work, device, way)) found.push_back(way);
  }
  return found;
}

PointwiseLaunch::PointwiseLaunch(const Pointwise& work, const cudaDeviceProp& device, const Way& way)
    : work_(work), way_(way) {
  const Rings rings = choose_rings(work, device, way).value();
  a_stages_ = rings.a_stages;
  tile_stages_ = rings.tile_stages;
  shared_bytes_ = shared_bytes(work, way, rings);
  const int columns = work.n / (way.strips * kTile);
  const std::int64_t tiles = divide_up(work.rows, kRows);
  const int wanted = device.multiProcessorCount * way.blocks_each / columns;
  blocks_ = static_cast<int>(std::min<std::int64_t>(tiles, std::max(1, wanted)));
  a_ = describe_rows(work.a, work.type, work.rows, work.k, kRows);
  b_ = work.epilogue == Epilogue::sums ? describe_rows(work.b, work.type, work.n, work.k, kTile)
                                       : describe_rows(work.b, work.type, work.k, work.n, kTile);
  y_ = describe_rows(work.y, work.type, work.rows, work.n, kRows);
  other_ = describe_rows(work.other, work.type, work.rows, work.n, kRows);
  out_ = describe_rows(work.out, work.type, work.rows, work.n, kRows / 2);
  // One limit for a kernel, whatever the shape: launches of several shapes share it.
  with_kernel(work_, way_, [&](auto kernel) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(device.sharedMemPerBlockOptin - kStaticShared));
  });
}

std::size_t PointwiseLaunch::partials() const {
  return static_cast<std::size_t>(blocks_) * 2 * static_cast<std::size_t>(work_.n);
}

void PointwiseLaunch::run(ReduceSpace space, cudaStream_t stream) const {
  with_kernel(work_, way_, [&](auto kernel) {
    launch(kernel,
           {dim3(static_cast<unsigned>(work_.n / (way_.strips * kTile)), static_cast<unsigned>(blocks_)),
            kBlock, shared_bytes_, is_small(work_.rows * work_.n / 8)},
           stream, work_, Rings{a_stages_, tile_stages_}, a_, b_, y_, other_, out_, space);
  });
}

}  // namespace redline::backend::cuda
