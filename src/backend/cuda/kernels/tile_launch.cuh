// Prepares launches of kernels that are built from tiles: see tile_launch.h.
#pragma once

#include "backend/cuda/kernels/tile_launch.h"
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {

// A grid of `columns` x `blocks` blocks. `partials`: the floats that they need in the reduce space.
struct TileGrid {
  int columns = 1, blocks = 1;
  int threads = 0;
  std::size_t shared_bytes = 0, partials = 0;
  bool early = false;  // as Launch::early
};
// Prepares the launch of a kernel with these arguments. Its last parameter is the reduce space.
template <typename... Parameters, typename... Arguments>
TileLaunch make_launch(void (*kernel)(Parameters...), const TileGrid& grid, const cudaDeviceProp& device,
                       const Arguments&... arguments) {
  // The limit belongs to the kernel, which is launched for several shapes: the most that any of them may use.
  cudaFuncAttributes attributes{};
  cudaFuncGetAttributes(&attributes, kernel);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(device.sharedMemPerBlockOptin - attributes.sharedSizeBytes));
  return {grid.partials, [=](ReduceSpace space, cudaStream_t stream) {
            launch(kernel,
                   {dim3(static_cast<unsigned>(grid.columns), static_cast<unsigned>(grid.blocks)),
                    grid.threads, grid.shared_bytes, grid.early},
                   stream, arguments..., space);
          }};
}

inline constexpr int kTotals = 32;

// Adds up the sums that the blocks of a weight gradient's kernel left. `Weights` says which is whose:
//   kEach              how many sums a block left
//   kSkipped           of every 32 sums, how many at their start belong to no weight
//   at(first, thread)  the weight that sum `first + thread` belongs to
//   kEarly             as Launch::early
template <typename T, typename Weights>
__global__ void __launch_bounds__(kThreads) total_kernel(const float* partials, int blocks, T* dw) {
  begin_kernel();
  // 32 sums by eight threads each, in a fixed order.
  constexpr int kParts = kThreads / kTotals;
  __shared__ float shared[kParts][kTotals];
  const int first = static_cast<int>(blockIdx.x) * kTotals;
  const int column = threadIdx.x % kTotals, part = threadIdx.x / kTotals;
  float sum = 0.0F;
#pragma unroll 4
  for (int b = part; b < blocks; b += kParts)
    sum += partials[std::int64_t{b} * Weights::kEach + first + column];
  shared[part][column] = sum;
  __syncthreads();
  if (part > 0 || column < Weights::kSkipped) return;
  for (int p = 1; p < kParts; ++p) sum += shared[p][column];
  dw[Weights::at(first, column)] = from_float<T>(sum);
}

// The launch `gradient`, and then total_kernel on the sums that its blocks left from `offset` on.
template <typename Weights>
TileLaunch with_total(const TileLaunch& gradient, const TileGrid& grid, std::size_t offset, void* dw,
                      Type dw_type) {
  const int blocks = grid.columns * grid.blocks;
  return {gradient.partials, [=](ReduceSpace space, cudaStream_t stream) {
            gradient.run(space, stream);
            dispatch_type(dw_type, [&]<typename T>() {
              launch(total_kernel<T, Weights>, {dim3(Weights::kEach / kTotals), kThreads, 0, Weights::kEarly},
                     stream, space.partials + offset, blocks, static_cast<T*>(dw));
            });
          }};
}

}  // namespace redline::backend::cuda
