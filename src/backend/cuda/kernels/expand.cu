#include "backend/cuda/kernels/expand.h"

#include <algorithm>

#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/tensor_map.h"
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {
namespace {

// A block keeps all weights in shared memory and walks down the rows, 64 at a time. A warp feeds a ring of
// tiles by the copy engine. Two groups of four warps each have a half of the columns: they hold the input in
// registers, normed and activated there, and multiply it with their weights. A warp turns its sixteen rows of
// the product in shared memory of its own and stores them by whole lines, which waits for nobody and is as
// fast as boxes by the copy engine, or faster. Sums stay in registers until the walk ends.
constexpr int kFrom = Expand::kFrom, kTo = Expand::kTo;
constexpr int kRows = 64;
constexpr int kGroup = 128, kGroups = 2, kConsumers = kGroups * kGroup;
constexpr int kBlock = kConsumers + 32;
constexpr int kColumns = kTo / kGroups;  // of a group
constexpr int kRowBytes = 128;           // of 64 channels: what the copy engine moves
constexpr int kTileBytes = kRows * kRowBytes;
constexpr int kWeightBytes = kTo * kRowBytes;
constexpr int kWarpRows = kRows / (kGroup / 32);
constexpr int kBoxBytes = kWarpRows * kRowBytes;
constexpr int kOutBytes = kColumns / 64 * kBoxBytes;  // of a warp
constexpr int kStages = 4;
constexpr std::size_t kSharedBytes =
    1024 + kWeightBytes + std::size_t{kStages} * kTileBytes + std::size_t{kConsumers / 32} * kOutBytes;

#ifdef REDLINE_HOPPER

using hopper::Cursor;
using hopper::Pair;
using hopper::Ring;

struct Barriers {
  std::uint64_t weights;
  Ring<kStages> x;
};

// Where the parts of shared memory lie.
struct Parts {
  std::byte *weights, *x, *out;
  __device__ explicit Parts(std::byte* dynamic) {
    weights = hopper::aligned(dynamic);
    x = weights + kWeightBytes;
    out = x + kStages * kTileBytes;
  }
};

struct Channels {
  float4 affine[kFrom / 2];         // of two neighbours: scales, biases
  float sums[kGroup / 32][2][kTo];  // of the warps of a group, at the end

  __device__ void find(const NormFinalize& from, int c) {
    const ChannelNorm norm = norm_of(from, c);
    if (blockIdx.x == 0) keep(from, c, norm);
    float* pair = &affine[c / 2].x + c % 2;
    pair[0] = norm.scale;
    pair[2] = norm.bias;
  }
};

__device__ __forceinline__ void sync_consumers() { hopper::sync_group(1, kConsumers); }

__device__ void produce(const CUtensorMap& x, const CUtensorMap& weights, const Parts& parts, Barriers& bars,
                        int tiles) {
  using namespace hopper;
  barrier_expect(&bars.weights, kWeightBytes);
  load_tile(parts.weights, weights, 0, 0, &bars.weights);
  Cursor at;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    barrier_wait(&bars.x.empty[at.stage], at.parity ^ 1U);
    barrier_expect(&bars.x.full[at.stage], kTileBytes);
    load_tile(parts.x + at.stage * kTileBytes, x, 0, tile * kRows, &bars.x.full[at.stage]);
    at.next(kStages);
  }
}

// What the convolution reads of a tile, as products hold it. Rows beyond `rows` are zeros.
template <typename T, bool kBefore>
__device__ __forceinline__ void hold_input(std::uint32_t (&held)[kFrom / 16][4], const std::byte* x_at,
                                           const Channels& channels, int rows) {
  const int lane = threadIdx.x % 32, first = threadIdx.x % kGroup / 32 * 16;
#pragma unroll
  for (int step = 0; step < kFrom / 16; ++step)
    hopper::load_matrices(held[step], x_at + hopper::swizzled(first + lane % 16, 2 * step + lane / 16));
  if constexpr (kBefore) {
#pragma unroll
    for (int i = 0; i < kFrom / 16 * 4; ++i) {
      const int step = i / 4, part = i % 4;
      const float4 affine = channels.affine[step * 8 + part / 2 * 4 + lane % 4];
      const float2 y = Pair<T>::of_bits(held[step][part]).floats();
      const Pair<T> z = Pair<T>::relu_of(fmaf(y.x, affine.x, affine.z), fmaf(y.y, affine.y, affine.w));
      held[step][part] = first + lane / 4 + part % 2 * 8 < rows ? z.bits() : 0U;
    }
  }
}

// Of what this thread saw, and of its squares: of two columns of every eight.
struct Sums {
  float first[kColumns / 4] = {}, second[kColumns / 4] = {};
};

// Rounds a product, adds it to the sums, and puts it where the warp stores it from.
template <typename T>
__device__ __forceinline__ void put_out(const float (&d)[kColumns / 2], Sums& sums, std::byte* turned) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kColumns / 8; j += 2) {
    std::uint32_t rounded[4];
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int eight = j + part / 2, from = 4 * eight + part % 2 * 2;
      const Pair<T> pair = Pair<T>::of(d[from], d[from + 1]);
      rounded[part] = pair.bits();
      const float2 value = pair.floats();
      sums.first[2 * eight] += value.x;
      sums.first[2 * eight + 1] += value.y;
      sums.second[2 * eight] = fmaf(value.x, value.x, sums.second[2 * eight]);
      sums.second[2 * eight + 1] = fmaf(value.y, value.y, sums.second[2 * eight + 1]);
    }
    hopper::store_matrices(turned + j / 8 * kBoxBytes + hopper::swizzled(lane % 16, j % 8 + lane / 16),
                           rounded);
  }
}

// Stores a warp's rows, of which there are `rows`: two at a time, sixteen bytes a thread.
__device__ __forceinline__ void store_rows(std::byte* to, const std::byte* turned, int rows) {
  const int row = threadIdx.x % 32 / 16, chunk = threadIdx.x % 16;
#pragma unroll
  for (int i = row; i < row + kWarpRows; i += 2) {
    if (i >= rows) break;
    *reinterpret_cast<uint4*>(to + i * kTo * 2 + chunk * 16) =
        *reinterpret_cast<const uint4*>(turned + chunk / 8 * kBoxBytes + hopper::swizzled(i, chunk % 8));
  }
}

// The sums over all threads and blocks, in a fixed order.
__device__ void finish_sums(const Expand& work, const Sums& sums, Channels& channels, ReduceSpace space) {
  const int group = threadIdx.x / kGroup, warp = threadIdx.x % kGroup / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kColumns / 4; ++i) {
    float first = sums.first[i], second = sums.second[i];
#pragma unroll
    for (int offset = 4; offset < 32; offset <<= 1) {
      first += __shfl_xor_sync(~0U, first, offset);
      second += __shfl_xor_sync(~0U, second, offset);
    }
    if (lane < 4) {
      const int c = group * kColumns + i / 2 * 8 + lane * 2 + i % 2;
      channels.sums[warp][0][c] = first;
      channels.sums[warp][1][c] = second;
    }
  }
  sync_consumers();
  static_assert(kConsumers == kTo, "a channel for each thread");
  const int c = static_cast<int>(threadIdx.x);
  float mine[2] = {};
  for (const auto& of_warp : channels.sums) {
    mine[0] += of_warp[0][c];
    mine[1] += of_warp[1][c];
  }
  double totals[2];
  if (!sum_over_blocks<kTo>(mine, 0, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), space,
                            sync_consumers, totals)) {
    return;
  }
  work.sums[c] = static_cast<float>(totals[0]);
  work.sums[kTo + c] = static_cast<float>(totals[1]);
}

template <typename T, bool kBefore>
__device__ __forceinline__ void consume(const Expand& work, const Parts& parts, Barriers& bars,
                                        Channels& channels, ReduceSpace space, int tiles) {
  using namespace hopper;
  const int group = threadIdx.x / kGroup,
            first = threadIdx.x % kGroup / 32 * kWarpRows;  // of the warp's rows
  const std::byte* weights = parts.weights + group * kColumns * kRowBytes;
  std::byte* turned = parts.out + threadIdx.x / 32 * kOutBytes;
  Sums sums;
  Cursor ring;
  barrier_wait(&bars.weights, 0);
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    const std::int64_t top = std::int64_t{tile} * kRows;
    const int rows = static_cast<int>(min(work.rows - top, std::int64_t{kRows}));
    std::uint32_t input[kFrom / 16][4];
    float d[kColumns / 2];
    barrier_wait(&bars.x.full[ring.stage], ring.parity);
    hold_input<T, kBefore>(input, parts.x + ring.stage * kTileBytes, channels, rows);
    matrix_begin();
#pragma unroll
    for (int step = 0; step < kFrom / 16; ++step)
      multiply<T, false>(d, input[step], matrix(weights + step * 32, 16, 1024), step > 0);
    matrix_commit();
    matrix_wait<0>();
    settle(d);
    if (threadIdx.x % 32 == 0) barrier_arrive(&bars.x.empty[ring.stage]);
    put_out<T>(d, sums, turned);
    __syncwarp();
    store_rows(static_cast<std::byte*>(work.out) + ((top + first) * kTo + group * kColumns) * 2, turned,
               rows - first);
    __syncwarp();
    ring.next(kStages);
  }
  finish_sums(work, sums, channels, space);
}

#endif

template <typename T, bool kBefore>
__global__ void __launch_bounds__(kBlock, 1)
    expand_kernel(const __grid_constant__ Expand work, const __grid_constant__ CUtensorMap x,
                  const __grid_constant__ CUtensorMap weights, ReduceSpace space) {
#ifdef REDLINE_HOPPER
  using namespace hopper;
  extern __shared__ std::byte dynamic[];
  __shared__ Barriers bars;
  __shared__ Channels channels;
  const Parts parts(dynamic);
  const int tiles = static_cast<int>((work.rows + kRows - 1) / kRows);
  if (threadIdx.x == 0) {
    barrier_init(&bars.weights, 1);
    bars.x.init(kConsumers / 32);
    publish_barriers();
  }
  __syncthreads();
  begin_kernel();
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) produce(x, weights, parts, bars, tiles);
    return;
  }
  if constexpr (kBefore) {
    if (threadIdx.x < kFrom) channels.find(work.norm, static_cast<int>(threadIdx.x));
    sync_consumers();
  }
  consume<T, kBefore>(work, parts, bars, channels, space, tiles);
#endif
}

// Calls body(kernel) with the kernel of a work's type and form.
template <typename Body>
void with_kernel(const Expand& work, const Body& body) {
  if (work.type == Type::f16) {
    work.before ? body(expand_kernel<__half, true>) : body(expand_kernel<__half, false>);
  } else {
    work.before ? body(expand_kernel<__nv_bfloat16, true>) : body(expand_kernel<__nv_bfloat16, false>);
  }
}

}  // namespace

ExpandLaunch::ExpandLaunch(const Expand& work, const cudaDeviceProp& device)
    : work_(work),
      x_(describe_rows(work.x, work.type, work.rows, kFrom, kRows)),
      weights_(describe_rows(work.weights, work.type, kTo, kFrom, kTo)),
      blocks_(
          static_cast<int>(std::min<std::int64_t>(device.multiProcessorCount, divide_up(work.rows, kRows)))) {
  with_kernel(work_, [](auto kernel) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSharedBytes));
  });
}

std::size_t ExpandLaunch::partials() const { return static_cast<std::size_t>(blocks_) * 2 * kTo; }

void ExpandLaunch::run(ReduceSpace space, cudaStream_t stream) const {
  with_kernel(work_, [&](auto kernel) {
    launch(kernel,
           {dim3(static_cast<unsigned>(blocks_)), kBlock, kSharedBytes, is_small(work_.rows * (kTo / 8))},
           stream, work_, x_, weights_, space);
  });
}

}  // namespace redline::backend::cuda
