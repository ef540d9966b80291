#include "backend/cuda/kernels/blended.h"

#include <algorithm>

#include "backend/cuda/kernels/blend.cuh"
#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/tensor_map.h"
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {
namespace {

// A block walks down the rows, 128 at a time, and across the wide side in pieces of 64 channels. A warp feeds
// one ring by the copy engine with all that is read, in the order of use: v, u and weights of each piece,
// then of a gradient y of the norm before. Eight warps have sixteen rows each. They blend u and v, put what
// is made in u's place, store it from there, and multiply it with the weights, from registers. At the end of
// a tile a warp turns its rows of the product in shared memory of its own, so that a lane sees whole columns,
// to gate them and to add them up, and stores them.
using Kind = Blended::Kind;
constexpr int kRows = 128;
constexpr int kPiece = 64;  // channels that are moved at once: rows of 128 bytes
constexpr int kUnitBytes = kRows * kPiece * 2;
constexpr int kWarpRows = 16, kWarpBytes = kWarpRows * kPiece * 2;
constexpr int kWarps = kRows / kWarpRows, kConsumers = kWarps * 32;
constexpr int kGroup = 128;
constexpr int kBlock = kConsumers + kGroup;  // a group for the feeding warp: registers are given by group

// How shared memory is shared out.
template <Kind kKind, int kNarrow>
struct Layout {
  // A gradient leaves from where y of the norm before lay, all else from where the warp turned it, of which
  // there are two then: one is stored while the next is made.
  static constexpr int kTurned = kKind == Kind::join ? 2 : 1;
  static constexpr int kTurnedBytes = kTurned * kWarps * kWarpBytes;
  static constexpr int kUnits = 13 - kTurned;                         // of the ring
  static constexpr int kUnitColumns = kNarrow < 128 ? kNarrow : 128;  // of a piece's weights that one holds
  [[maybe_unused]] static constexpr int kShares = kNarrow / kUnitColumns;  // units for the weights of a piece
  [[maybe_unused]] static constexpr int kWeightBytes = kUnitColumns * kPiece * 2;

  static std::size_t bytes(std::int64_t wide) {
    return 1024 + kUnits * kUnitBytes + kTurnedBytes +
           static_cast<std::size_t>(wide / 2) * (sizeof(float4) + sizeof(float2));
  }
};

#ifdef REDLINE_HOPPER

using hopper::Blend;
using hopper::Cursor;
using hopper::Pair;
using hopper::Ring;

// Where the parts of shared memory lie.
struct Parts {
  std::byte *units, *turned;
  Blend blend;
  template <typename Layout>
  __device__ Parts(std::byte* dynamic, int wide, Layout /*of*/) {
    units = hopper::aligned(dynamic);
    turned = units + Layout::kUnits * kUnitBytes;
    blend.ab = reinterpret_cast<float4*>(turned + Layout::kTurnedBytes);
    blend.c = reinterpret_cast<float2*>(blend.ab + wide / 2);
  }
};

// Of a channel of the wide side: made = a * u + b * v + c.
struct Numbers {
  float a, b, c;
};
template <Kind kKind>
__device__ __forceinline__ Numbers numbers_of(const Blended& work, int channel) {
  if constexpr (kKind == Kind::gradient) {
    const Slope slope(work.after, channel, work.wide, static_cast<float>(work.rows));
    return {slope.a, slope.b, slope.c};
  } else {
    Numbers found{};
    if (work.finalizes) {
      const ChannelNorm norm = norm_of(work.norm, channel);
      if (blockIdx.x == 0) keep(work.norm, channel, norm);
      found = {1.0F, norm.scale, norm.bias};
    } else {
      found = {1.0F, work.affine[channel], work.affine[work.wide + channel]};
    }
    if (work.u_affine == nullptr) return found;
    return {work.u_affine[channel], found.b, found.c + work.u_affine[work.wide + channel]};
  }
}

// The norm before.
template <Kind kKind, int kNarrow>
struct Columns {
  float mean[kNarrow], scale[kNarrow], bias[kNarrow];
  __device__ void fill(const Blended& work) {
    const int c = static_cast<int>(threadIdx.x);
    if (c >= kNarrow) return;
    mean[c] = work.before_saved[c];
    scale[c] = work.before_affine[c];
    bias[c] = work.before_affine[kNarrow + c];
  }
};
template <int kNarrow>
struct Columns<Kind::join, kNarrow> {
  __device__ void fill(const Blended& /*has none*/) {}
};

struct Maps {
  const CUtensorMap &u, &v, &made, &weights, &before, &out;
};

__device__ __forceinline__ void sync_consumers() { hopper::sync_group(1, kConsumers); }

template <Kind kKind, int kNarrow, int kUnits>
__device__ void produce(const Maps& maps, std::byte* units, Ring<kUnits>& ring, int wide, int tiles) {
  using namespace hopper;
  using Is = Layout<kKind, kNarrow>;
  Cursor at;
  // load(to, full) has the copy engine bring so many bytes of one unit.
  const auto feed = [&](int bytes, const auto& load) {
    barrier_wait(&ring.empty[at.stage], at.parity ^ 1U);
    barrier_expect(&ring.full[at.stage], static_cast<unsigned>(bytes));
    load(units + at.stage * kUnitBytes, &ring.full[at.stage]);
    at.next(kUnits);
  };
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    const auto feed_rows = [&](const CUtensorMap& map, int column) {
      feed(kUnitBytes,
           [&](std::byte* to, std::uint64_t* full) { load_tile(to, map, column, tile * kRows, full); });
    };
    for (int channel = 0; channel < wide; channel += kPiece) {
      feed_rows(maps.v, channel);
      feed_rows(maps.u, channel);
      for (int column = 0; column < kNarrow; column += Is::kUnitColumns) {
        feed(Is::kWeightBytes, [&](std::byte* to, std::uint64_t* full) {
          if constexpr (kKind == Kind::join) {
            load_tile(to, maps.weights, channel, column, full);
          } else {
            for (int i = 0; i < Is::kUnitColumns / kPiece; ++i)
              load_tile(to + i * kPiece * kPiece * 2, maps.weights, column + i * kPiece, channel, full);
          }
        });
      }
    }
    if constexpr (kKind == Kind::gradient) {
      for (int column = 0; column < kNarrow; column += kPiece) feed_rows(maps.before, column);
    }
  }
}

// A warp's rows of 64 columns, rounded, as lanes read whole columns.
template <typename T>
__device__ __forceinline__ void turn(const float* d, std::byte* turned) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kPiece / 8; j += 2) {
    std::uint32_t rounded[4];
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int from = 4 * (j + part / 2) + part % 2 * 2;
      rounded[part] = Pair<T>::of(d[from], d[from + 1]).bits();
    }
    hopper::store_matrices(turned + hopper::swizzled(lane % 16, j + lane / 16), rounded);
  }
}

// Where a lane's two columns of a warp's row lie.
__device__ __forceinline__ int column_of(int row) {
  const int lane = threadIdx.x % 32;
  return hopper::swizzled(row, lane / 4) + lane % 4 * 4;
}

// Of two neighbouring columns, over the rows that a warp had.
struct Sums {
  float2 first{}, second{};  // second: of products with `factor`
  __device__ __forceinline__ void add(float2 value, float2 factor) {
    first.x += value.x;
    first.y += value.y;
    second.x = fmaf(value.x, factor.x, second.x);
    second.y = fmaf(value.y, factor.y, second.y);
  }
};

// Adds up a lane's two columns, and their squares, of the warp's rows, of which there are `rows`.
template <typename T>
__device__ __forceinline__ void add_up(const std::byte* turned, int rows, Sums& sums) {
#pragma unroll
  for (int row = 0; row < kWarpRows; ++row) {
    const float2 value = reinterpret_cast<const Pair<T>*>(turned + column_of(row))->floats();
    if (row < rows) sums.add(value, value);
  }
}

// Gates a lane's two columns of the warp's rows, of which there are `rows`, adds them up, and puts them in
// y's place.
template <typename T>
__device__ __forceinline__ void gate(const std::byte* turned, std::byte* y_at, float2 scale, float2 bias,
                                     int rows, Sums& sums) {
  constexpr int kDeep = 8;  // reads at once: what is written might be what a later one is for
#pragma unroll
  for (int begin = 0; begin < kWarpRows; begin += kDeep) {
    Pair<T> gradients[kDeep], inputs[kDeep];
#pragma unroll
    for (int i = 0; i < kDeep; ++i) {
      gradients[i] = *reinterpret_cast<const Pair<T>*>(turned + column_of(begin + i));
      inputs[i] = *reinterpret_cast<const Pair<T>*>(y_at + column_of(begin + i));
    }
#pragma unroll
    for (int i = 0; i < kDeep; ++i) {
      float2 gradient = gradients[i].floats();
      const float2 input = inputs[i].floats();
      const bool inside = begin + i < rows;
      if (!inside || fmaf(input.x, scale.x, bias.x) <= 0.0F) gradient.x = 0.0F;
      if (!inside || fmaf(input.y, scale.y, bias.y) <= 0.0F) gradient.y = 0.0F;
      sums.add(gradient, input);
      *reinterpret_cast<Pair<T>*>(y_at + column_of(begin + i)) = Pair<T>::of(gradient.x, gradient.y);
    }
  }
}

// The norm's sums over all warps and blocks, in a fixed order.
template <Kind kKind, int kNarrow>
__device__ void finish_sums(const Blended& work, const Sums (&sums)[kNarrow / kPiece],
                            const Columns<kKind, kNarrow>& columns, float* scratch, ReduceSpace space) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  sync_consumers();  // all have done with what lay there
#pragma unroll
  for (int strip = 0; strip < kNarrow / kPiece; ++strip) {
    const int c = strip * kPiece + 2 * lane;
    float2 *to = reinterpret_cast<float2*>(scratch + warp * 2 * kNarrow + c), second = sums[strip].second;
    to[0] = sums[strip].first;
    if constexpr (kKind == Kind::gradient) {
      second.x -= columns.mean[c] * to[0].x;
      second.y -= columns.mean[c + 1] * to[0].y;
    }
    to[kNarrow / 2] = second;
  }
  sync_consumers();
  constexpr int kCount = std::min(2 * kNarrow, kConsumers), kEach = 2 * kNarrow / kCount;
  const int t = static_cast<int>(threadIdx.x);
  float mine[kEach] = {};
  if (t < kCount) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      for (int w = 0; w < kWarps; ++w) mine[i] += scratch[w * 2 * kNarrow + i * kCount + t];
    }
  }
  double totals[kEach] = {};
  if (!sum_over_blocks<kCount>(mine, 0, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), space,
                               sync_consumers, totals)) {
    return;
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = i * kCount + t, c = at % kNarrow;
    if constexpr (kKind == Kind::join) {
      work.sums[at] = static_cast<float>(totals[i]);
    } else if (at < kNarrow) {
      work.dbeta[c] = static_cast<float>(totals[i]);
    } else {
      work.dgamma[c] = static_cast<float>(totals[i] * work.before_saved[kNarrow + c]);
    }
  }
}

// Writes which entries of a piece are positive, of a warp's rows from `first` on.
template <typename T>
__device__ __forceinline__ void store_mask(const Blended& work, const std::uint32_t (&made)[4][4],
                                           std::int64_t first, int channel) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint2 bits = hopper::positive<T>(made, half);
    const std::int64_t row = first + lane / 4 + half * 8;
    if (lane % 4 == half && row < work.rows)
      reinterpret_cast<uint2*>(work.mask)[(row * work.wide + channel) / 64] = bits;
  }
}

template <typename T, Kind kKind, int kNarrow, int kUnits>
__device__ void consume(const Blended& work, const Maps& maps, const Parts& parts, Ring<kUnits>& ring,
                        const Columns<kKind, kNarrow>& columns, ReduceSpace space, int tiles) {
  using namespace hopper;
  using Is = Layout<kKind, kNarrow>;
  constexpr bool kJoin = kKind == Kind::join;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Sums sums[kNarrow / kPiece];
  Cursor at;
  // The next unit, arrived.
  const auto take = [&] {
    const int stage = at.stage;
    barrier_wait(&ring.full[stage], at.parity);
    at.next(kUnits);
    return stage;
  };
  const auto unit = [&](int stage) { return parts.units + stage * kUnitBytes; };
  const auto release = [&](int stage) {
    if (lane == 0) barrier_arrive(&ring.empty[stage]);
  };
  const auto store = [&](const CUtensorMap& map, int column, int tile, const std::byte* warp_rows) {
    fence_async();
    __syncwarp();
    if (lane == 0) {
      store_tile(map, column, tile * kRows + warp * kWarpRows, warp_rows);
      commit_stores();
    }
  };
  const auto release_stored = [&](int stage) {
    if (lane == 0) wait_stores_read<0>();
    release(stage);
  };
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    const std::int64_t first = std::int64_t{tile} * kRows + warp * kWarpRows;
    float d[Is::kShares][Is::kUnitColumns / 2];
    std::uint32_t made[2][kPiece / 16][4];  // of this piece and the one before, whose product is under way
    int weights[Is::kShares] = {};          // the stages that it reads
    for (int begin = 0; begin < work.wide; begin += 2 * kPiece) {
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const int channel = begin + odd * kPiece, v_at = take(), u_at = take();
        blend<T, kJoin>(made[odd], unit(u_at), unit(v_at), parts.blend.from(channel));
        store(maps.made, channel, tile, unit(u_at) + warp * kWarpBytes);
        release(v_at);
        if (kJoin && work.mask != nullptr) store_mask<T>(work, made[odd], first, channel);
        if (channel > 0) {
          matrix_wait<0>();
          for (const int stage : weights) release(stage);
        }
        for (int& stage : weights) stage = take();
        matrix_begin();
#pragma unroll
        for (int share = 0; share < Is::kShares; ++share) {
          const std::byte* b = unit(weights[share]);
#pragma unroll
          for (int step = 0; step < kPiece / 16; ++step) {
            multiply<T, !kJoin>(d[share], made[odd][step],
                                kJoin ? matrix(b + step * 32, 16, 1024)
                                      : matrix(b + step * kWarpBytes, kPiece * kPiece * 2, 1024),
                                channel + step > 0);
          }
        }
        matrix_commit();
        release_stored(u_at);
      }
    }
    matrix_wait<0>();
    for (const int stage : weights) release(stage);
#pragma unroll
    for (int share = 0; share < Is::kShares; ++share) settle(d[share]);
    const int rows = static_cast<int>(min(work.rows - first, std::int64_t{kWarpRows}));
#pragma unroll
    for (int strip = 0; strip < kNarrow / kPiece; ++strip) {
      const int column = strip * kPiece;
      std::byte* turned = parts.turned + (strip % Is::kTurned * kWarps + warp) * kWarpBytes;
      if constexpr (kJoin) {
        if (lane == 0) wait_stores_read<1>();
        __syncwarp();
      }
      turn<T>(&d[column / Is::kUnitColumns][column % Is::kUnitColumns / 2], turned);
      if constexpr (kJoin) {
        __syncwarp();
        add_up<T>(turned, rows, sums[strip]);
        store(maps.out, column, tile, turned);
      } else {
        const int y_at = take();
        __syncwarp();
        const int c = column + 2 * lane;
        gate<T>(turned, unit(y_at) + warp * kWarpBytes, {columns.scale[c], columns.scale[c + 1]},
                {columns.bias[c], columns.bias[c + 1]}, rows, sums[strip]);
        store(maps.out, column, tile, unit(y_at) + warp * kWarpBytes);
        release_stored(y_at);
      }
    }
  }
  if (lane == 0) wait_stores();
  finish_sums<kKind, kNarrow>(work, sums, columns, reinterpret_cast<float*>(parts.turned), space);
}

#endif

template <typename T, Kind kKind, int kNarrow>
__global__ void __launch_bounds__(kBlock, 1)
    blended_kernel(const __grid_constant__ Blended work, const __grid_constant__ CUtensorMap u,
                   const __grid_constant__ CUtensorMap v, const __grid_constant__ CUtensorMap made,
                   const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap before,
                   const __grid_constant__ CUtensorMap out, ReduceSpace space) {
#ifdef REDLINE_HOPPER
  using namespace hopper;
  using Is = Layout<kKind, kNarrow>;
  extern __shared__ std::byte dynamic[];
  __shared__ Ring<Is::kUnits> ring;
  __shared__ Columns<kKind, kNarrow> columns;
  Parts parts(dynamic, work.wide, Is{});
  const int tiles = static_cast<int>((work.rows + kRows - 1) / kRows);
  if (threadIdx.x == 0) {
    ring.init(kWarps);
    publish_barriers();
  }
  begin_kernel();
  parts.blend.fill(work.wide, kBlock, [&](int channel) { return numbers_of<kKind>(work, channel); });
  columns.fill(work);
  __syncthreads();
  constexpr int kFew = 24, kMany = 240;
  static_assert(kFew * kGroup + kMany * kConsumers <= 65536);
  const Maps maps{u, v, made, weights, before, out};
  if (threadIdx.x >= kConsumers) {
    give_registers<kFew>();
    if (threadIdx.x == kConsumers) produce<kKind, kNarrow>(maps, parts.units, ring, work.wide, tiles);
    return;
  }
  take_registers<kMany>();
  consume<T, kKind, kNarrow>(work, maps, parts, ring, columns, space, tiles);
#endif
}

// Calls body(kernel, layout) with the kernel of a work's kind, type and width.
template <typename Body>
void with_kernel(const Blended& work, const Body& body) {
  const auto of_type = [&]<typename T>() {
    const auto of = [&]<Kind kKind, int kNarrow>() {
      body(blended_kernel<T, kKind, kNarrow>, Layout<kKind, kNarrow>{});
    };
    if (work.kind == Kind::join) {
      if (work.narrow == 64) return of.template operator()<Kind::join, 64>();
      if (work.narrow == 128) return of.template operator()<Kind::join, 128>();
      return of.template operator()<Kind::join, 256>();
    }
    if (work.narrow == 128) return of.template operator()<Kind::gradient, 128>();
    return of.template operator()<Kind::gradient, 256>();
  };
  work.type == Type::f16 ? of_type.template operator()<__half>()
                         : of_type.template operator()<__nv_bfloat16>();
}

}  // namespace

BlendedLaunch::BlendedLaunch(const Blended& work, const cudaDeviceProp& device)
    : work_(work),
      u_(describe_rows(work.u, work.type, work.rows, work.wide, kRows)),
      v_(describe_rows(work.v, work.type, work.rows, work.wide, kRows)),
      made_(describe_rows(work.made, work.type, work.rows, work.wide, kWarpRows)),
      before_(describe_rows(work.before_y, work.type, work.rows, work.narrow, kRows)),
      out_(describe_rows(work.out, work.type, work.rows, work.narrow, kWarpRows)),
      blocks_(
          static_cast<int>(std::min<std::int64_t>(device.multiProcessorCount, divide_up(work.rows, kRows)))) {
  with_kernel(work_, [&](auto kernel, auto layout) {
    weights_ = work.kind == Kind::join
                   ? describe_rows(work.weights, work.type, work.narrow, work.wide, layout.kUnitColumns)
                   : describe_rows(work.weights, work.type, work.wide, work.narrow, kPiece);
    // One limit for a kernel, whatever the shape: launches of several shapes share it.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(layout.bytes(Blended::kMostWide)));
  });
}

std::size_t BlendedLaunch::partials() const {
  return static_cast<std::size_t>(blocks_) * 2 * static_cast<std::size_t>(work_.narrow);
}

void BlendedLaunch::run(ReduceSpace space, cudaStream_t stream) const {
  with_kernel(work_, [&](auto kernel, auto layout) {
    launch(kernel, {dim3(static_cast<unsigned>(blocks_)), kBlock, layout.bytes(work_.wide)}, stream, work_,
           u_, v_, made_, weights_, before_, out_, space);
  });
}

}  // namespace redline::backend::cuda
