#include "backend/cuda/kernels/expand_grad.h"

#include <algorithm>

#include "backend/cuda/kernels/blend.cuh"
#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/tensor_map.h"
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {
namespace {

// A block walks down the rows, 128 at a time, and across the wide side in pieces of 64 channels. A warp feeds
// rings of tiles by the copy engine. Two groups of four warps each turn g and y of 64 rows into dy, which
// they multiply with the weights, from registers, for their rows of dx, and put in g's place. From there one
// of the groups multiplies all 128 rows with what the convolution read, for the piece's columns of dw turned:
// each group has those of two pieces, and keeps them in registers until the walk ends.
constexpr int kFrom = ExpandGrad::kFrom, kTo = ExpandGrad::kTo;
constexpr int kRows = 128;
constexpr int kPiece = 64;  // channels that are moved at once: rows of 128 bytes
constexpr int kTileBytes = kRows * kPiece * 2;
constexpr int kWeightBytes = kTo * kFrom * 2;
constexpr int kGStages = 5, kYStages = 4, kXStages = 2;
constexpr int kGroup = 128, kGroups = 2, kConsumers = kGroups * kGroup;
constexpr int kGroupRows = kRows / kGroups;
constexpr int kBlock = kConsumers + kGroup;  // a group for the feeding warp: registers are given by group
constexpr std::size_t kSharedBytes =
    1024 + kWeightBytes + std::size_t{kGStages + kYStages + kXStages} * kTileBytes;

#ifdef REDLINE_HOPPER

constexpr int kPieces = kTo / kPiece;
constexpr int kStepBytes = 16 * 128;      // of sixteen rows, as deep as a product
constexpr int kEach = kPieces / kGroups;  // pieces whose dw a group has

using hopper::Cursor;
using hopper::Pair;
using hopper::Ring;

struct Barriers {
  std::uint64_t weights;
  Ring<kGStages> g;
  Ring<kYStages> y;
  Ring<kXStages> x;
};

// Where the parts of shared memory lie.
struct Parts {
  std::byte *weights, *g, *y, *x;
  __device__ explicit Parts(std::byte* dynamic) {
    weights = hopper::aligned(dynamic);
    g = weights + kWeightBytes;
    y = g + kGStages * kTileBytes;
    x = y + kYStages * kTileBytes;
  }
};

// What is known of channels.
struct Channels {
  float4 ab[kTo / 2];  // of the wide side
  float2 c[kTo / 2];
  float mean[kFrom], scale[kFrom], bias[kFrom];
  ColumnScratch sums;  // at the end

  __device__ hopper::Blend slopes() { return {ab, c}; }
};

__device__ __forceinline__ void sync_consumers() { hopper::sync_group(1, kConsumers); }

__device__ void produce(const CUtensorMap& g, const CUtensorMap& y, const CUtensorMap& x,
                        const CUtensorMap& weights, const Parts& parts, Barriers& bars, int tiles) {
  using namespace hopper;
  barrier_expect(&bars.weights, kWeightBytes);
  for (int piece = 0; piece < kPieces; ++piece)
    load_tile(parts.weights + piece * kPiece * kFrom * 2, weights, 0, piece * kPiece, &bars.weights);
  Cursor g_at, y_at, x_at;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    const auto feed = [&]<int kStages>(Ring<kStages>& ring, Cursor& at, std::byte* to, const CUtensorMap& map,
                                       int column) {
      barrier_wait(&ring.empty[at.stage], at.parity ^ 1U);
      barrier_expect(&ring.full[at.stage], kTileBytes);
      load_tile(to + at.stage * kTileBytes, map, column, tile * kRows, &ring.full[at.stage]);
      at.next(kStages);
    };
    feed(bars.x, x_at, parts.x, x, 0);
    for (int piece = 0; piece < kPieces; ++piece) {
      feed(bars.y, y_at, parts.y, y, piece * kPiece);
      feed(bars.g, g_at, parts.g, g, piece * kPiece);
    }
  }
}

// What the convolution read, turned, as products hold it: of sixteen channels and the tile's rows.
template <typename T, bool kBefore>
__device__ __forceinline__ void hold_input(std::uint32_t (&held)[kRows / 16][4], const std::byte* x_at,
                                           const Channels& channels, int rows) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kGroup / 32;
  const int at = hopper::swizzled(lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2);
#pragma unroll
  for (int step = 0; step < kRows / 16; ++step)
    hopper::load_transposed(held[step], x_at + step * kStepBytes + at);
  if constexpr (kBefore) {
#pragma unroll
    for (int i = 0; i < kRows / 16 * 4; ++i) {
      const int part = i % 4, row = i / 4 * 16 + part / 2 * 8 + lane % 4 * 2;
      const int channel = warp * 16 + lane / 4 + part % 2 * 8;
      const float scale = channels.scale[channel], bias = channels.bias[channel];
      const float2 y = Pair<T>::of_bits(held[i / 4][part]).floats();
      const float first = row < rows ? fmaf(y.x, scale, bias) : 0.0F;
      const float second = row + 1 < rows ? fmaf(y.y, scale, bias) : 0.0F;
      held[i / 4][part] = Pair<T>::relu_of(first, second).bits();
    }
  }  // else rows beyond the last arrive as zeros
}

// Of the gated gradient and of its products with y, over the rows that this thread sees: of two columns of
// every eight.
struct Sums {
  float first[kFrom / 4] = {}, second[kFrom / 4] = {};
};

// Gates a group's rows of dx where that is wanted, adds them to the sums, and puts them in x's place.
template <typename T, bool kBefore>
__device__ __forceinline__ void finish_tile(const float (&dx)[kFrom / 2], Sums& sums, std::byte* x_at,
                                            const Channels& channels, int rows) {
  const int lane = threadIdx.x % 32, row = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
  const auto at = [&](int j, int half) { return hopper::swizzled(row + 8 * half, j) + lane % 4 * 4; };
  constexpr int kDeep = 4;  // reads at once: what is written might be what a later one is for
#pragma unroll
  for (int begin = 0; begin < kFrom / 8; begin += kDeep) {
    Pair<T> inputs[kDeep][2] = {};
#pragma unroll
    for (int i = 0; i < 2 * kDeep; ++i) {
      if constexpr (kBefore)
        inputs[i / 2][i % 2] = *reinterpret_cast<const Pair<T>*>(x_at + at(begin + i / 2, i % 2));
    }
#pragma unroll
    for (int i = 0; i < 2 * kDeep; ++i) {
      const int j = begin + i / 2, half = i % 2;
      float x = dx[4 * j + 2 * half], y = dx[4 * j + 2 * half + 1];
      if constexpr (kBefore) {
        const int c = 8 * j + lane % 4 * 2;
        const float2 input = inputs[i / 2][half].floats();
        const bool inside = row + 8 * half < rows;
        if (!inside || fmaf(input.x, channels.scale[c], channels.bias[c]) <= 0.0F) x = 0.0F;
        if (!inside || fmaf(input.y, channels.scale[c + 1], channels.bias[c + 1]) <= 0.0F) y = 0.0F;
        sums.first[2 * j] += x;
        sums.first[2 * j + 1] += y;
        sums.second[2 * j] = fmaf(x, input.x, sums.second[2 * j]);
        sums.second[2 * j + 1] = fmaf(y, input.y, sums.second[2 * j + 1]);
      }
      *reinterpret_cast<Pair<T>*>(x_at + at(j, half)) = Pair<T>::of(x, y);
    }
  }
}

// The norm's sums over all threads and blocks, in a fixed order.
__device__ void finish_sums(const ExpandGrad& work, Sums& sums, Channels& channels, ReduceSpace space) {
#pragma unroll
  for (int i = 0; i < kFrom / 4; ++i)
    sums.second[i] -= channels.mean[i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2] * sums.first[i];
  double total = 0.0;
  if (!sum_columns(sums.first, sums.second, channels.sums, 0, static_cast<int>(blockIdx.x),
                   static_cast<int>(gridDim.x), space, sync_consumers, total)) {
    return;
  }
  const int t = static_cast<int>(threadIdx.x), c = t % kFrom;
  if (t < kFrom) {
    work.dbeta[c] = static_cast<float>(total);
  } else {
    work.dgamma[c] = static_cast<float>(total * work.saved[kFrom + c]);
  }
}

// The work of a group. Each of its products that is under way is known where it is waited for: that of dx
// for a piece, and behind it, where the group has the piece's columns, that of dw.
template <typename T, bool kBefore, int kMe>
__device__ __forceinline__ void consume(const ExpandGrad& work, const CUtensorMap& out, const Parts& parts,
                                        Barriers& bars, Channels& channels, float* partials,
                                        ReduceSpace space, int tiles) {
  using namespace hopper;
  constexpr auto kHas = [](int piece) { return piece / kEach == kMe; };
  const bool leader = threadIdx.x % kGroup == 0;
  float dw[kEach][kPiece / 2] = {};
  Sums sums;
  Cursor g_ring, y_ring, x_ring;
  int stored = -1;  // the stage of x that the last tile of dx leaves from
  barrier_wait(&bars.weights, 0);
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    const int rows = static_cast<int>(min(work.rows - std::int64_t{tile} * kRows, std::int64_t{kRows}));
    std::byte* x_at = parts.x + x_ring.stage * kTileBytes;
    std::uint32_t input[kRows / 16][4], dy[kPiece / 16][4];
    float dx[kFrom / 2];
    barrier_wait(&bars.x.full[x_ring.stage], x_ring.parity);
    hold_input<T, kBefore>(input, x_at, channels, rows);
    int held = -1;  // the stage of g that the product of dw reads
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      if (piece > 0) kHas(piece - 1) ? matrix_wait<1>() : matrix_wait<0>();  // that of dx: dy is free again
      std::byte* g_at = parts.g + g_ring.stage * kTileBytes;
      barrier_wait(&bars.y.full[y_ring.stage], y_ring.parity);
      barrier_wait(&bars.g.full[g_ring.stage], g_ring.parity);
      blend<T, false>(dy, g_at, parts.y + y_ring.stage * kTileBytes, channels.slopes().from(piece * kPiece));
      matrix_begin();
#pragma unroll
      for (int step = 0; step < kPiece / 16; ++step) {
        multiply<T, true>(
            dx, dy[step],
            matrix(parts.weights + piece * kPiece * kFrom * 2 + step * kStepBytes, kTileBytes, 1024),
            piece + step > 0);
      }
      matrix_commit();
      fence_async();
      sync_consumers();
      if (kMe == 0 && leader) barrier_arrive(&bars.y.empty[y_ring.stage]);
      if (piece == 0 && leader && stored >= 0) {
        wait_stores_read<0>();
        barrier_arrive(&bars.x.empty[stored]);
      }
      if (piece > 0 && kHas(piece - 1)) {
        matrix_wait<1>();
        if (leader) barrier_arrive(&bars.g.empty[held]);
      }
      if (kHas(piece)) {
        matrix_begin();
#pragma unroll
        for (int step = 0; step < kRows / 16; ++step)
          multiply<T, true>(dw[piece % kEach], input[step],
                            matrix(g_at + step * kStepBytes, kTileBytes, 1024), true);
        matrix_commit();
      }
      held = g_ring.stage;
      g_ring.next(kGStages);
      y_ring.next(kYStages);
    }
    kHas(kPieces - 1) ? matrix_wait<1>() : matrix_wait<0>();
    settle(dx);
    finish_tile<T, kBefore>(dx, sums, x_at, channels, rows);
    fence_async();
    sync_group(2 + kMe, kGroup);
    if (leader) {
      store_tile(out, 0, tile * kRows + kMe * kGroupRows, x_at + kMe * kGroupRows * 128);
      commit_stores();
    }
    if (kHas(kPieces - 1)) {
      matrix_wait<0>();
      if (leader) barrier_arrive(&bars.g.empty[held]);
    }
    stored = x_ring.stage;
    x_ring.next(kXStages);
  }
  if (leader) wait_stores();
  float* to = partials + std::int64_t{blockIdx.x} * kTo * kFrom;
  const int lane = threadIdx.x % 32, channel = threadIdx.x % kGroup / 32 * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    settle(dw[i]);
#pragma unroll
    for (int j = 0; j < kPiece / 4; ++j) {
      const int column = (kMe * kEach + i) * kPiece + j / 2 * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(to + (channel + j % 2 * 8) * kTo + column) = {dw[i][2 * j],
                                                                               dw[i][2 * j + 1]};
    }
  }
  if constexpr (kBefore) finish_sums(work, sums, channels, space);
}

#endif

template <typename T, bool kBefore>
__global__ void __launch_bounds__(kBlock, 1)
    expand_grad_kernel(const __grid_constant__ ExpandGrad work, const __grid_constant__ CUtensorMap g,
                       const __grid_constant__ CUtensorMap y, const __grid_constant__ CUtensorMap x,
                       const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap out,
                       float* partials, ReduceSpace space) {
#ifdef REDLINE_HOPPER
  using namespace hopper;
  extern __shared__ std::byte dynamic[];
  __shared__ Barriers bars;
  __shared__ Channels channels;
  const Parts parts(dynamic);
  const int tiles = static_cast<int>((work.rows + kRows - 1) / kRows);
  if (threadIdx.x == 0) {
    barrier_init(&bars.weights, 1);
    bars.g.init(1);
    bars.y.init(1);
    bars.x.init(kGroups);
    publish_barriers();
  }
  begin_kernel();
  channels.slopes().fill(kTo, kBlock, [&](int channel) {
    return Slope(work.norm, channel, kTo, static_cast<float>(work.rows));
  });
  if (kBefore && threadIdx.x < kFrom) {
    channels.mean[threadIdx.x] = work.saved[threadIdx.x];
    channels.scale[threadIdx.x] = work.affine[threadIdx.x];
    channels.bias[threadIdx.x] = work.affine[kFrom + threadIdx.x];
  }
  __syncthreads();
  constexpr int kFew = 24, kMany = 240;
  static_assert(kFew * kGroup + kMany * kConsumers <= 65536);
  if (threadIdx.x >= kConsumers) {
    give_registers<kFew>();
    if (threadIdx.x == kConsumers) produce(g, y, x, weights, parts, bars, tiles);
    return;
  }
  take_registers<kMany>();
  threadIdx.x < kGroup ? consume<T, kBefore, 0>(work, out, parts, bars, channels, partials, space, tiles)
                       : consume<T, kBefore, 1>(work, out, parts, bars, channels, partials, space, tiles);
#endif
}

// From the blocks' sums, which lie turned.
template <typename T>
__global__ void __launch_bounds__(kThreads) expand_total_kernel(const float* partials, int blocks, T* dw) {
  begin_kernel();
  const int first = static_cast<int>(blockIdx.x) * kTotals;
  const float sum = total_of_blocks(partials, blocks, kTo * kFrom, first);
  const int from = first / kTo, to = first % kTo + static_cast<int>(threadIdx.x);
  if (threadIdx.x < kTotals) dw[to * kFrom + from] = from_float<T>(sum);
}

// Calls body(kernel) with the kernel of a work's type and form.
template <typename Body>
void with_kernel(const ExpandGrad& work, const Body& body) {
  if (work.type == Type::f16) {
    work.before ? body(expand_grad_kernel<__half, true>) : body(expand_grad_kernel<__half, false>);
  } else {
    work.before ? body(expand_grad_kernel<__nv_bfloat16, true>)
                : body(expand_grad_kernel<__nv_bfloat16, false>);
  }
}

}  // namespace

ExpandGradLaunch::ExpandGradLaunch(const ExpandGrad& work, const cudaDeviceProp& device)
    : work_(work),
      g_(describe_rows(work.norm.g, work.type, work.rows, kTo, kRows)),
      y_(describe_rows(work.norm.y, work.type, work.rows, kTo, kRows)),
      x_(describe_rows(work.x, work.type, work.rows, kFrom, kRows)),
      weights_(describe_rows(work.weights, work.type, kTo, kFrom, kPiece)),
      dx_(describe_rows(work.dx, work.type, work.rows, kFrom, kGroupRows)),
      blocks_(
          static_cast<int>(std::min<std::int64_t>(device.multiProcessorCount, divide_up(work.rows, kRows)))) {
  with_kernel(work_, [](auto kernel) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSharedBytes));
  });
}

std::size_t ExpandGradLaunch::partials() const {
  return static_cast<std::size_t>(blocks_) * (kTo * kFrom + 2 * kFrom);
}

void ExpandGradLaunch::run(ReduceSpace space, cudaStream_t stream) const {
  float* partials = space.partials + std::size_t{2 * kFrom} * static_cast<std::size_t>(blocks_);
  with_kernel(work_, [&](auto kernel) {
    launch(kernel, {dim3(static_cast<unsigned>(blocks_)), kBlock, kSharedBytes}, stream, work_, g_, y_, x_,
           weights_, dx_, partials, space);
  });
  dispatch_type(work_.dw_type, [&]<typename T>() {
    launch(expand_total_kernel<T>, {dim3(kTo * kFrom / kTotals)}, stream, partials, blocks_,
           static_cast<T*>(work_.dw));
  });
}

}  // namespace redline::backend::cuda
