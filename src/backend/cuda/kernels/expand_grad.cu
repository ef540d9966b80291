#include "backend/cuda/kernels/expand_grad.h"

#include <algorithm>

#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/tensor_map.h"
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {
namespace {

// A block walks down the rows, 64 at a time. One warp feeds a ring of two stages by the copy engine; two
// groups of four warps each turn g and y of half of the channels into dy, in g's place, and multiply it with
// the weights, for half of dx, and, turned, with what the convolution read, for half of dw. The halves of dx
// are added by way of shared memory; those of dw stay in registers until the walk ends.
constexpr int kFrom = ExpandGrad::kFrom, kTo = ExpandGrad::kTo;
constexpr int kRows = 64;
constexpr int kPiece = 64;  // channels that are moved at once: rows of 128 bytes
constexpr int kPieces = kTo / kPiece;
constexpr int kPieceBytes = kRows * kPiece * 2;
constexpr int kStages = 2;
constexpr int kStageBytes = (2 * kPieces + 1) * kPieceBytes;  // g, y, x
constexpr int kWeightBytes = kTo * kFrom * 2;
constexpr int kGroup = 128, kGroups = 2, kConsumers = kGroups * kGroup;
constexpr int kBlock = kConsumers + 32;
constexpr int kEach = kPieces / kGroups;  // pieces of a group
// Weights, ring, what the convolution read, and two tiles of dx on their way out.
constexpr std::size_t kSharedBytes = 1024 + kWeightBytes + kStages * kStageBytes + 3 * kPieceBytes;

#ifdef REDLINE_HOPPER

using hopper::Cursor;
using hopper::Pair;

struct Barriers {
  std::uint64_t weights;
  std::uint64_t full[kStages], empty[kStages];
};

// What is known of the columns of x.
struct Columns {
  float mean[kFrom], scale[kFrom], bias[kFrom];
};

template <typename T>
struct alignas(16) Eight {
  Pair<T> v[4];
};

// Where sixteen bytes of a row of 128 lie in a swizzled piece.
__device__ __forceinline__ int place(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

__device__ __forceinline__ void sync_consumers() { hopper::sync_group(1, kConsumers); }

__device__ void produce(const CUtensorMap& g, const CUtensorMap& y, const CUtensorMap& x,
                        const CUtensorMap& weights, std::byte* weights_at, std::byte* ring_at, Barriers& bars,
                        int tiles) {
  using namespace hopper;
  barrier_expect(&bars.weights, kWeightBytes);
  for (int piece = 0; piece < kPieces; ++piece)
    load_tile(weights_at + piece * kPiece * kFrom * 2, weights, 0, piece * kPiece, &bars.weights);
  Cursor ring;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    std::uint64_t* full = &bars.full[ring.stage];
    barrier_wait(&bars.empty[ring.stage], ring.parity ^ 1U);
    barrier_expect(full, kStageBytes);
    std::byte* to = ring_at + ring.stage * kStageBytes;
    for (int piece = 0; piece < kPieces; ++piece) {
      load_tile(to + piece * kPieceBytes, g, piece * kPiece, tile * kRows, full);
      load_tile(to + (kPieces + piece) * kPieceBytes, y, piece * kPiece, tile * kRows, full);
    }
    load_tile(to + 2 * kPieces * kPieceBytes, x, 0, tile * kRows, full);
    ring.next(kStages);
  }
}

// g and y of a piece to dy, in g's place: a thread takes eight channels of every sixteenth row.
template <typename T>
__device__ __forceinline__ void differentiate(std::byte* g_at, const std::byte* y_at,
                                              const Slope (&slopes)[8]) {
  constexpr int kStep = kGroup / 8, kTurns = kRows / kStep;
  const int first = threadIdx.x % kGroup / 8, chunk = threadIdx.x % 8;
  Eight<T> g[kTurns], y[kTurns];
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int at = place(first + turn * kStep, chunk);
    g[turn] = *reinterpret_cast<const Eight<T>*>(g_at + at);
    y[turn] = *reinterpret_cast<const Eight<T>*>(y_at + at);
  }
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 gradient = g[turn].v[k].floats(), value = y[turn].v[k].floats();
      g[turn].v[k] =
          Pair<T>::of(slopes[2 * k].at(gradient.x, value.x), slopes[2 * k + 1].at(gradient.y, value.y));
    }
    *reinterpret_cast<Eight<T>*>(g_at + place(first + turn * kStep, chunk)) = g[turn];
  }
}

// relu(affine(y)), as the convolution read it; zeros beyond the last row.
template <typename T>
__device__ __forceinline__ void activate(const std::byte* y_at, std::byte* x_at, const Columns& columns,
                                         int rows) {
  constexpr int kStep = kConsumers / 8;
  const int chunk = threadIdx.x % 8;
#pragma unroll
  for (int turn = 0; turn < kRows / kStep; ++turn) {
    const int row = static_cast<int>(threadIdx.x) / 8 + turn * kStep;
    Eight<T> value = *reinterpret_cast<const Eight<T>*>(y_at + place(row, chunk));
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int c = chunk * 8 + 2 * k;
      const float2 y = value.v[k].floats();
      const float first = fmaxf(fmaf(y.x, columns.scale[c], columns.bias[c]), 0.0F);
      const float second = fmaxf(fmaf(y.y, columns.scale[c + 1], columns.bias[c + 1]), 0.0F);
      value.v[k] = row < rows ? Pair<T>::of(first, second) : Pair<T>::of(0.0F, 0.0F);
    }
    *reinterpret_cast<Eight<T>*>(x_at + place(row, chunk)) = value;
  }
}

// A thread's part of a tile of dx: of half of the columns, for both groups of warps.
struct Half {
  static constexpr int kBlocks = kFrom / 8 / kGroups;  // of eight columns
  float v[kBlocks][4];                                 // two columns of a row, two of the one eight below

  // Gives the other group its half of this one's sums and takes its own from there. `between` is memory for
  // two halves.
  template <typename Sync>
  __device__ __forceinline__ void exchange(const float (&sums)[kFrom / 2], float4* between,
                                           const Sync& sync) {
    const bool upper = threadIdx.x >= kGroup;
    const int thread = threadIdx.x % kGroup;
    const auto box = [&](bool of_upper, int j) -> float4& {
      return between[((of_upper ? kBlocks : 0) + j) * kGroup + thread];
    };
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      float given[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float low = sums[4 * j + i], high = sums[4 * (kBlocks + j) + i];
        given[i] = upper ? low : high;
        v[j][i] = upper ? high : low;
      }
      box(!upper, j) = {given[0], given[1], given[2], given[3]};
    }
    sync();
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const float4 taken = box(upper, j);
      v[j][0] += taken.x;
      v[j][1] += taken.y;
      v[j][2] += taken.z;
      v[j][3] += taken.w;
    }
  }
};

// Of the gated gradient and of its products with y, over the rows that this thread sees.
struct Sums {
  float first[Half::kBlocks][2] = {}, second[Half::kBlocks][2] = {};
};

// Gates a half where that is wanted, adds it to the sums, and puts it where it is stored from.
template <typename T, bool kBefore>
__device__ __forceinline__ void finish_tile(Half& dx, Sums& sums, const std::byte* y_at, std::byte* out_at,
                                            const Columns& columns, int rows) {
  const int group = threadIdx.x / kGroup, lane = threadIdx.x % 32;
  const int row = threadIdx.x % kGroup / 32 * 16 + lane / 4;
  const auto at = [&](int j, int half) {
    return place(row + 8 * half, group * Half::kBlocks + j) + lane % 4 * 4;
  };
  Pair<T> inputs[Half::kBlocks][2] = {};
  if constexpr (kBefore) {
#pragma unroll
    for (int i = 0; i < 2 * Half::kBlocks; ++i)
      inputs[i / 2][i % 2] = *reinterpret_cast<const Pair<T>*>(y_at + at(i / 2, i % 2));
  }
#pragma unroll
  for (int i = 0; i < 2 * Half::kBlocks; ++i) {
    const int j = i / 2, half = i % 2;
    float x = dx.v[j][2 * half], y = dx.v[j][2 * half + 1];
    if constexpr (kBefore) {
      const int c = 8 * (group * Half::kBlocks + j) + lane % 4 * 2;
      const float2 input = inputs[j][half].floats();
      const bool inside = row + 8 * half < rows;
      if (!inside || fmaf(input.x, columns.scale[c], columns.bias[c]) <= 0.0F) x = 0.0F;
      if (!inside || fmaf(input.y, columns.scale[c + 1], columns.bias[c + 1]) <= 0.0F) y = 0.0F;
      sums.first[j][0] += x;
      sums.first[j][1] += y;
      sums.second[j][0] = fmaf(x, input.x, sums.second[j][0]);
      sums.second[j][1] = fmaf(y, input.y, sums.second[j][1]);
    }
    *reinterpret_cast<Pair<T>*>(out_at + at(j, half)) = Pair<T>::of(x, y);
  }
}

// The norm's sums over all threads and blocks, in a fixed order.
__device__ void finish_sums(const ExpandGrad& work, Sums& sums, const Columns& columns, ReduceSpace space) {
  __shared__ float scratch[kGroup / 32][2][kFrom];
  const int group = threadIdx.x / kGroup, warp = threadIdx.x % kGroup / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 2 * Half::kBlocks; ++i) {
    const int c = 8 * (group * Half::kBlocks + i / 2) + lane % 4 * 2 + i % 2;
    float first = sums.first[i / 2][i % 2];
    float second = sums.second[i / 2][i % 2] - columns.mean[c] * first;
#pragma unroll
    for (int offset = 4; offset < 32; offset <<= 1) {
      first += __shfl_xor_sync(~0U, first, offset);
      second += __shfl_xor_sync(~0U, second, offset);
    }
    if (lane < 4) {
      scratch[warp][0][c] = first;
      scratch[warp][1][c] = second;
    }
  }
  sync_consumers();
  const int t = static_cast<int>(threadIdx.x), which = t / kFrom, c = t % kFrom;
  float mine = 0.0F;
  if (which < 2) {
    for (const auto& of_warp : scratch) mine += of_warp[which][c];
  }
  double total = 0.0;
  if (!sum_over_blocks<2 * kFrom>(mine, 0, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), space,
                                  sync_consumers, total)) {
    return;
  }
  if (which == 0) {
    work.dbeta[c] = static_cast<float>(total);
  } else {
    work.dgamma[c] = static_cast<float>(total * work.saved[kFrom + c]);
  }
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
  __shared__ Columns columns;
  std::byte* weights_at = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  std::byte* ring_at = weights_at + kWeightBytes;
  std::byte* active_at = ring_at + kStages * kStageBytes;
  std::byte* out_at = active_at + kPieceBytes;
  const int tiles = static_cast<int>((work.rows + kRows - 1) / kRows);
  if (threadIdx.x == 0) {
    barrier_init(&bars.weights, 1);
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&bars.full[i], 1);
      barrier_init(&bars.empty[i], 1);
    }
    fence_async();
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  begin_kernel();
  if (kBefore && threadIdx.x < kFrom) {
    columns.mean[threadIdx.x] = work.saved[threadIdx.x];
    columns.scale[threadIdx.x] = work.affine[threadIdx.x];
    columns.bias[threadIdx.x] = work.affine[kFrom + threadIdx.x];
  }
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) produce(g, y, x, weights, weights_at, ring_at, bars, tiles);
    return;
  }
  const int group = threadIdx.x / kGroup, lane = threadIdx.x % 32;
  Slope slopes[kEach][8];
#pragma unroll
  for (int i = 0; i < kEach * 8; ++i) {
    const int channel = (group * kEach + i / 8) * kPiece + static_cast<int>(threadIdx.x) % 8 * 8 + i % 8;
    slopes[i / 8][i % 8] = Slope(work.norm, channel, kTo, static_cast<float>(work.rows));
  }
  float dw[kEach][kFrom / 2] = {};
  Sums sums;
  Cursor ring;
  int buffer = 0;
  barrier_wait(&bars.weights, 0);
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    const int rows = static_cast<int>(min(work.rows - std::int64_t{tile} * kRows, std::int64_t{kRows}));
    std::byte* g_at = ring_at + ring.stage * kStageBytes;
    std::byte* y_at = g_at + kPieces * kPieceBytes;
    std::byte* x_at = y_at + kPieces * kPieceBytes;
    std::byte* dx_at = out_at + buffer * kPieceBytes;
    barrier_wait(&bars.full[ring.stage], ring.parity);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = (group * kEach + i) * kPieceBytes;
      differentiate<T>(g_at + at, y_at + at, slopes[i]);
    }
    if constexpr (kBefore) activate<T>(x_at, active_at, columns, rows);
    fence_async();
    sync_consumers();

    float dx[kFrom / 2];
    matrix_begin();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int piece = group * kEach + i;
#pragma unroll
      for (int step = 0; step < kPiece / 16; ++step) {
        multiply<T, false, true>(
            dx, matrix(g_at + piece * kPieceBytes + step * 32, 16, 1024),
            matrix(weights_at + piece * kPiece * kFrom * 2 + step * 2048, kPieceBytes, 1024), i + step > 0);
      }
    }
    matrix_commit();
    const std::byte* read_at = kBefore ? active_at : x_at;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int step = 0; step < kRows / 16; ++step) {
        multiply<T, true, true>(
            dw[i], matrix(g_at + (group * kEach + i) * kPieceBytes + step * 2048, kPieceBytes, 1024),
            matrix(read_at + step * 2048, kPieceBytes, 1024), true);
      }
    }
    matrix_commit();
    matrix_wait<1>();
    settle(dx);

    if (threadIdx.x == 0) wait_stores_read<1>();  // the tile before last has left its buffer
    Half mine;
    mine.exchange(dx, reinterpret_cast<float4*>(y_at), sync_consumers);
    finish_tile<T, kBefore>(mine, sums, x_at, dx_at, columns, rows);
    matrix_wait<0>();
    fence_async();
    sync_consumers();
    if (threadIdx.x == 0) {
      barrier_arrive(&bars.empty[ring.stage]);
      store_tile(out, 0, tile * kRows, dx_at);
      commit_stores();
    }
    buffer ^= 1;
    ring.next(kStages);
  }
  if (threadIdx.x == 0) wait_stores();
  float* to = partials + std::int64_t{blockIdx.x} * kTo * kFrom;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    settle(dw[i]);
    const int channel = (group * kEach + i) * kPiece + threadIdx.x % kGroup / 32 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < kFrom / 4; ++j) {
      const int at = (channel + j % 2 * 8) * kFrom + j / 2 * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(to + at) = {dw[i][2 * j], dw[i][2 * j + 1]};
    }
  }
  if constexpr (kBefore) finish_sums(work, sums, columns, space);
#endif
}

template <typename T>
__global__ void __launch_bounds__(kThreads) expand_total_kernel(const float* partials, int blocks, T* dw) {
  begin_kernel();
  const int first = static_cast<int>(blockIdx.x) * kTotals;
  const float sum = total_of_blocks(partials, blocks, kTo * kFrom, first);
  if (threadIdx.x < kTotals) dw[first + static_cast<int>(threadIdx.x)] = from_float<T>(sum);
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
      dx_(describe_rows(work.dx, work.type, work.rows, kFrom, kRows)),
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
