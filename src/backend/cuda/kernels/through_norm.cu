#include "backend/cuda/kernels/through_norm.h"

#include <algorithm>

#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/slopes.cuh"
#include "backend/cuda/kernels/tensor_map.h"
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {
namespace {

// A block walks down the rows, 128 at a time, and across the norm's channels in pieces of 64. A warp feeds
// one ring by the copy engine with all that is read, in the order of use: y, g and weights of each piece,
// then y of the norm before. Eight warps have sixteen rows each. They turn g and y into dy, put it in g's
// place, store it from there, and multiply it with the weights, from registers. At the end of a tile a warp
// turns its rows of dx in shared memory of its own, so that a lane sees whole columns: it gates them, adds
// them up, and puts them where y of the norm before was, to be stored.
constexpr int kRows = 128;
constexpr int kPiece = 64;  // channels that are moved at once: rows of 128 bytes
constexpr int kUnitBytes = kRows * kPiece * 2;
constexpr int kUnits = 12;         // of the ring
constexpr int kUnitColumns = 128;  // of a piece's weights that one unit holds
constexpr int kWarpRows = 16, kWarpBytes = kWarpRows * kPiece * 2;
constexpr int kWarps = kRows / kWarpRows, kConsumers = kWarps * 32;
constexpr int kGroup = 128;
constexpr int kBlock = kConsumers + kGroup;  // a group for the feeding warp: registers are given by group
constexpr int kTurnedBytes = kWarps * kWarpBytes;

std::size_t shared_bytes(const ThroughNorm& work) {
  return 1024 + kUnits * kUnitBytes + kTurnedBytes +
         static_cast<std::size_t>(work.to / 2) * (sizeof(float4) + sizeof(float2));
}

#ifdef REDLINE_HOPPER

using hopper::Cursor;
using hopper::Pair;
using hopper::Ring;
using hopper::Slopes;

// Where the parts of shared memory lie.
struct Parts {
  std::byte *units, *turned;
  Slopes slopes;
  __device__ Parts(std::byte* dynamic, int channels) {
    units = dynamic + (1024 - hopper::shared_address(dynamic) % 1024) % 1024;
    turned = units + kUnits * kUnitBytes;
    slopes.ab = reinterpret_cast<float4*>(turned + kTurnedBytes);
    slopes.c = reinterpret_cast<float2*>(slopes.ab + channels / 2);
  }
};

// The norm before.
template <int kFrom>
struct Columns {
  float mean[kFrom], scale[kFrom], bias[kFrom];
};

struct Maps {
  const CUtensorMap &g, &after, &weights, &before, &dy, &dx;
};

__device__ __forceinline__ void sync_consumers() { hopper::sync_group(1, kConsumers); }

template <int kFrom>
__device__ void produce(const Maps& maps, std::byte* units, Ring<kUnits>& ring, int channels, int tiles) {
  using namespace hopper;
  Cursor at;
  // load(to, full) has the copy engine bring one unit.
  const auto feed = [&](const auto& load) {
    barrier_wait(&ring.empty[at.stage], at.parity ^ 1U);
    barrier_expect(&ring.full[at.stage], kUnitBytes);
    load(units + at.stage * kUnitBytes, &ring.full[at.stage]);
    at.next(kUnits);
  };
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    const auto feed_rows = [&](const CUtensorMap& map, int column) {
      feed([&](std::byte* to, std::uint64_t* full) { load_tile(to, map, column, tile * kRows, full); });
    };
    for (int channel = 0; channel < channels; channel += kPiece) {
      feed_rows(maps.after, channel);
      feed_rows(maps.g, channel);
      for (int column = 0; column < kFrom; column += kUnitColumns) {
        feed([&](std::byte* to, std::uint64_t* full) {
          load_tile(to, maps.weights, column, channel, full);
          load_tile(to + kUnitBytes / 2, maps.weights, column + kPiece, channel, full);
        });
      }
    }
    for (int column = 0; column < kFrom; column += kPiece) feed_rows(maps.before, column);
  }
}

// Of two neighbouring columns, over the rows that a warp had.
struct Sums {
  float2 first{}, second{};  // second: of products with y, its mean not yet taken off
};

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

// Gates a lane's two columns of the warp's rows, of which there are `rows`, adds them up, and puts them in
// y's place.
template <typename T>
__device__ __forceinline__ void gate(const std::byte* turned, std::byte* y_at, float2 scale, float2 bias,
                                     int rows, Sums& sums) {
  const int lane = threadIdx.x % 32;
  constexpr int kDeep = 8;  // reads at once: what is written might be what a later one is for
#pragma unroll
  for (int begin = 0; begin < kWarpRows; begin += kDeep) {
    Pair<T> gradients[kDeep], inputs[kDeep];
    const auto at = [&](int i) { return hopper::swizzled(begin + i, lane / 4) + lane % 4 * 4; };
#pragma unroll
    for (int i = 0; i < kDeep; ++i) {
      gradients[i] = *reinterpret_cast<const Pair<T>*>(turned + at(i));
      inputs[i] = *reinterpret_cast<const Pair<T>*>(y_at + at(i));
    }
#pragma unroll
    for (int i = 0; i < kDeep; ++i) {
      float2 gradient = gradients[i].floats();
      const float2 input = inputs[i].floats();
      const bool inside = begin + i < rows;
      if (!inside || fmaf(input.x, scale.x, bias.x) <= 0.0F) gradient.x = 0.0F;
      if (!inside || fmaf(input.y, scale.y, bias.y) <= 0.0F) gradient.y = 0.0F;
      sums.first.x += gradient.x;
      sums.first.y += gradient.y;
      sums.second.x = fmaf(gradient.x, input.x, sums.second.x);
      sums.second.y = fmaf(gradient.y, input.y, sums.second.y);
      *reinterpret_cast<Pair<T>*>(y_at + at(i)) = Pair<T>::of(gradient.x, gradient.y);
    }
  }
}

// The norm's sums over all warps and blocks, in a fixed order.
template <int kFrom>
__device__ void finish_sums(const ThroughNorm& work, const Sums (&sums)[kFrom / kPiece],
                            const Columns<kFrom>& columns, float* scratch, ReduceSpace space) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  sync_consumers();  // all have done with what lay there
#pragma unroll
  for (int strip = 0; strip < kFrom / kPiece; ++strip) {
    const int c = strip * kPiece + 2 * lane;
    float* to = scratch + warp * 2 * kFrom + c;
    const auto [first, second] = sums[strip];
    *reinterpret_cast<float2*>(to) = first;
    *reinterpret_cast<float2*>(to + kFrom) = {second.x - columns.mean[c] * first.x,
                                              second.y - columns.mean[c + 1] * first.y};
  }
  sync_consumers();
  constexpr int kEach = 2 * kFrom / kConsumers;
  float mine[kEach] = {};
  const int t = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    for (int w = 0; w < kWarps; ++w) mine[i] += scratch[w * 2 * kFrom + i * kConsumers + t];
  }
  double totals[kEach] = {};
  if (!sum_over_blocks<kConsumers>(mine, 0, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), space,
                                   sync_consumers, totals)) {
    return;
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int c = (i * kConsumers + t) % kFrom;
    if (i * kConsumers + t < kFrom) {
      work.dbeta[c] = static_cast<float>(totals[i]);
    } else {
      work.dgamma[c] = static_cast<float>(totals[i] * work.saved[kFrom + c]);
    }
  }
}

template <typename T, int kFrom>
__device__ void consume(const ThroughNorm& work, const Maps& maps, const Parts& parts, Ring<kUnits>& ring,
                        const Columns<kFrom>& columns, ReduceSpace space, int tiles) {
  using namespace hopper;
  constexpr int kShares = kFrom / kUnitColumns;  // units that the weights of a piece take
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Sums sums[kFrom / kPiece];
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
  // Stores the warp's rows of a unit.
  const auto store = [&](const CUtensorMap& map, int column, int tile, int stage) {
    fence_async();
    __syncwarp();
    if (lane == 0) {
      store_tile(map, column, tile * kRows + warp * kWarpRows, unit(stage) + warp * kWarpBytes);
      commit_stores();
    }
  };
  const auto release_stored = [&](int stage) {
    if (lane == 0) wait_stores_read<0>();
    release(stage);
  };
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    float dx[kShares][kUnitColumns / 2];
    std::uint32_t dy[2][kPiece / 16][4];  // of this piece and the one before, whose product is under way
    int weights[kShares] = {};            // the stages that it reads
    for (int begin = 0; begin < work.to; begin += 2 * kPiece) {
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const int channel = begin + odd * kPiece, y_at = take(), g_at = take();
        differentiate<T>(dy[odd], unit(g_at), unit(y_at), parts.slopes.from(channel));
        store(maps.dy, channel, tile, g_at);
        release(y_at);
        if (channel > 0) {
          matrix_wait<0>();
          for (const int stage : weights) release(stage);
        }
        for (int& stage : weights) stage = take();
        matrix_begin();
#pragma unroll
        for (int share = 0; share < kShares; ++share) {
#pragma unroll
          for (int step = 0; step < kPiece / 16; ++step) {
            multiply<T, true>(dx[share], dy[odd][step],
                              matrix(unit(weights[share]) + step * kWarpBytes, kUnitBytes / 2, 1024),
                              channel + step > 0);
          }
        }
        matrix_commit();
        release_stored(g_at);
      }
    }
    matrix_wait<0>();
    for (const int stage : weights) release(stage);
    const int rows =
        static_cast<int>(min(work.rows - std::int64_t{tile} * kRows - warp * kWarpRows, std::int64_t{kRows}));
    std::byte* turned = parts.turned + warp * kWarpBytes;
#pragma unroll
    for (int share = 0; share < kShares; ++share) settle(dx[share]);
#pragma unroll
    for (int strip = 0; strip < kFrom / kPiece; ++strip) {
      const int column = strip * kPiece;
      turn<T>(&dx[column / kUnitColumns][column % kUnitColumns / 2], turned);
      const int y_at = take();
      __syncwarp();
      const int c = column + 2 * lane;
      gate<T>(turned, unit(y_at) + warp * kWarpBytes, {columns.scale[c], columns.scale[c + 1]},
              {columns.bias[c], columns.bias[c + 1]}, rows, sums[strip]);
      store(maps.dx, column, tile, y_at);
      release_stored(y_at);
    }
  }
  if (lane == 0) wait_stores();
  finish_sums<kFrom>(work, sums, columns, reinterpret_cast<float*>(parts.turned), space);
}

#endif

template <typename T, int kFrom>
__global__ void __launch_bounds__(kBlock, 1)
    through_norm_kernel(const __grid_constant__ ThroughNorm work, const __grid_constant__ CUtensorMap g,
                        const __grid_constant__ CUtensorMap after,
                        const __grid_constant__ CUtensorMap weights,
                        const __grid_constant__ CUtensorMap before, const __grid_constant__ CUtensorMap dy,
                        const __grid_constant__ CUtensorMap dx, ReduceSpace space) {
#ifdef REDLINE_HOPPER
  using namespace hopper;
  extern __shared__ std::byte dynamic[];
  __shared__ Ring<kUnits> ring;
  __shared__ Columns<kFrom> columns;
  Parts parts(dynamic, work.to);
  const int tiles = static_cast<int>((work.rows + kRows - 1) / kRows);
  if (threadIdx.x == 0) {
    ring.init(kWarps);
    publish_barriers();
  }
  begin_kernel();
  parts.slopes.find(work.norm, work.to, static_cast<float>(work.rows), kBlock);
  if (threadIdx.x < kFrom) {
    columns.mean[threadIdx.x] = work.saved[threadIdx.x];
    columns.scale[threadIdx.x] = work.affine[threadIdx.x];
    columns.bias[threadIdx.x] = work.affine[kFrom + threadIdx.x];
  }
  __syncthreads();
  constexpr int kFew = 24, kMany = 240;
  static_assert(kFew * kGroup + kMany * kConsumers <= 65536);
  const Maps maps{g, after, weights, before, dy, dx};
  if (threadIdx.x >= kConsumers) {
    give_registers<kFew>();
    if (threadIdx.x == kConsumers) produce<kFrom>(maps, parts.units, ring, work.to, tiles);
    return;
  }
  take_registers<kMany>();
  consume<T, kFrom>(work, maps, parts, ring, columns, space, tiles);
#endif
}

// Calls body(kernel) with the kernel of a work's type and width.
template <typename Body>
void with_kernel(const ThroughNorm& work, const Body& body) {
  if (work.type == Type::f16) {
    work.from == 128 ? body(through_norm_kernel<__half, 128>) : body(through_norm_kernel<__half, 256>);
  } else {
    work.from == 128 ? body(through_norm_kernel<__nv_bfloat16, 128>)
                     : body(through_norm_kernel<__nv_bfloat16, 256>);
  }
}

}  // namespace

ThroughNormLaunch::ThroughNormLaunch(const ThroughNorm& work, const cudaDeviceProp& device)
    : work_(work),
      g_(describe_rows(work.norm.g, work.type, work.rows, work.to, kRows)),
      after_(describe_rows(work.norm.y, work.type, work.rows, work.to, kRows)),
      weights_(describe_rows(work.weights, work.type, work.to, work.from, kPiece)),
      before_(describe_rows(work.y, work.type, work.rows, work.from, kRows)),
      dy_(describe_rows(work.norm.dy, work.type, work.rows, work.to, kWarpRows)),
      dx_(describe_rows(work.dx, work.type, work.rows, work.from, kWarpRows)),
      blocks_(
          static_cast<int>(std::min<std::int64_t>(device.multiProcessorCount, divide_up(work.rows, kRows)))) {
  // One limit for a kernel, whatever the shape: launches of several shapes share it.
  ThroughNorm widest = work;
  widest.to = ThroughNorm::kMostTo;
  with_kernel(work_, [&](auto kernel) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shared_bytes(widest)));
  });
}

std::size_t ThroughNormLaunch::partials() const {
  return static_cast<std::size_t>(blocks_) * 2 * static_cast<std::size_t>(work_.from);
}

void ThroughNormLaunch::run(ReduceSpace space, cudaStream_t stream) const {
  with_kernel(work_, [&](auto kernel) {
    launch(kernel, {dim3(static_cast<unsigned>(blocks_)), kBlock, shared_bytes(work_)}, stream, work_, g_,
           after_, weights_, before_, dy_, dx_, space);
  });
}

}  // namespace redline::backend::cuda
