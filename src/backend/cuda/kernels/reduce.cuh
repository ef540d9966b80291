// Sums over the rows of a matrix, per channel. A block owns a tile of eight channel vectors and a share of
// the rows; partial sums go to memory, and the last block of a tile adds them in a fixed order, so that the
// result does not depend on timing.
#pragma once

#include <algorithm>

#include "backend/cuda/kernels/pass.cuh"

namespace redline::backend::cuda {

inline constexpr int kTileVectors = 8;
inline constexpr int kTileRows = kThreads / kTileVectors;

// As many blocks as run concurrently, so that all of them finish at about the same time.
inline constexpr int kReduceBlocksEach = 2;  // on a multiprocessor

struct ReduceGrid {
  int tiles, splits;
  ReduceGrid(const Matrix& m, int n) {
    tiles = static_cast<int>(divide_up(m.channels, std::int64_t{kTileVectors} * n));
    const std::int64_t most = divide_up(m.rows, kTileRows * kUnroll);
    const std::int64_t wanted = std::max(1, multiprocessors() * kReduceBlocksEach / tiles);
    splits = static_cast<int>(most < wanted ? most : wanted);
  }
  dim3 blocks() const { return {static_cast<unsigned>(tiles), static_cast<unsigned>(splits)}; }
};

// Whether this block is the last of its column tile to arrive: after a fence, it can read what the others
// have written. `sync` synchronises the threads that call this.
template <typename Sync>
REDLINE_DEVICE bool comes_last(ReduceSpace space, const Sync& sync) {
  __shared__ bool last;
  __threadfence();
  sync();
  if (threadIdx.x == 0) {
    last = atomicAdd(&space.counters[blockIdx.x], 1U) == gridDim.y - 1;
    if (last) space.counters[blockIdx.x] = 0;
  }
  sync();
  return last;
}

// In the last block of a tile, put(which, channel, total) is called for both sums of its channels.
template <int N, typename Put>
__device__ void sum_over_block(float (&first)[N], float (&second)[N], int channels, ReduceSpace space,
                               const Put& put) {
  constexpr int kTile = kTileVectors * N;  // channels
  union Shared {
    float rows[kTileRows][2][kTile + 1];
    float4 groups[kThreads];
  };
  __shared__ Shared shared;
  const int vector = threadIdx.x % kTileVectors, row = threadIdx.x / kTileVectors;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    shared.rows[row][0][vector * N + k] = first[k];
    shared.rows[row][1][vector * N + k] = second[k];
  }
  __syncthreads();
  float* partials = space.partials + std::int64_t{blockIdx.x} * gridDim.y * 2 * kTile;
  for (int i = threadIdx.x; i < 2 * kTile; i += kThreads) {
    float sum = 0.0F;
#pragma unroll 8
    for (int r = 0; r < kTileRows; ++r) sum += shared.rows[r][i / kTile][i % kTile];
    partials[std::int64_t{blockIdx.y} * 2 * kTile + i] = sum;
  }
  if (!comes_last(space, [] { __syncthreads(); })) return;
  __threadfence();
  // Groups of threads add interleaved shares of the partials, with four sums per thread and many loads in
  // flight; then the groups' sums are added.
  constexpr int kFours = 2 * kTile / 4, kGroups = kThreads / kFours;
  {
    const int four = threadIdx.x % kFours, group = threadIdx.x / kFours;
    const auto* from = reinterpret_cast<const float4*>(partials) + four;
    double sum[4] = {};
#pragma unroll 16
    for (int p = group; p < static_cast<int>(gridDim.y); p += kGroups) {
      const float4 part = __ldcg(from + std::int64_t{p} * kFours);
      sum[0] += part.x;
      sum[1] += part.y;
      sum[2] += part.z;
      sum[3] += part.w;
    }
    shared.groups[group * kFours + four] = {static_cast<float>(sum[0]), static_cast<float>(sum[1]),
                                            static_cast<float>(sum[2]), static_cast<float>(sum[3])};
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * kTile; i += kThreads) {
    float sum = 0.0F;
    for (int group = 0; group < kGroups; ++group) sum += (&shared.groups[0].x)[group * 2 * kTile + i];
    const int channel = static_cast<int>(blockIdx.x) * kTile + i % kTile;
    if (channel < channels) put(i / kTile, channel, sum);
  }
}

// For grids of column tiles x blocks that share the rows: adds up `mine` of the first kCount threads over all
// blocks of a column tile, in block order. Returns true in those threads of the last block to arrive, the
// only ones that get the totals. `sync` synchronises the threads that call this.
template <int kCount, int kEach, typename Sync>
REDLINE_DEVICE bool sum_over_blocks(const float (&mine)[kEach], ReduceSpace space, const Sync& sync,
                                    double (&totals)[kEach]) {
  const int t = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.y);
  const int blocks = static_cast<int>(gridDim.y);
  float* partials = space.partials + std::int64_t{blockIdx.x} * blocks * kCount * kEach;
  if (t < kCount) {
    for (int i = 0; i < kEach; ++i) partials[(block * kEach + i) * kCount + t] = mine[i];
  }
  if (!comes_last(space, sync) || t >= kCount) return false;
  __threadfence();
  for (double& total : totals) total = 0.0;
#pragma unroll 16
  for (int b = 0; b < blocks; ++b) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) totals[i] += __ldcg(&partials[(b * kEach + i) * kCount + t]);
  }
  return true;
}

// A total of a channel's gradient (0), or of its products with y - mean (1).
template <typename Total>
REDLINE_DEVICE void put_gradient(const GatedNorm& norm, int channels, int which, int channel, Total total) {
  if (which == 1) total *= norm.saved[channels + channel];
  (which == 0 ? norm.dbeta : norm.dgamma)[channel] = static_cast<float>(total);
}

}  // namespace redline::backend::cuda
