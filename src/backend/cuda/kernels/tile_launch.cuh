// How kernels that are built from tiles are made ready to launch: see tile_launch.h.
#pragma once

#include "backend/cuda/kernels/tile_launch.h"
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {

// `columns` by `blocks` blocks of `threads`, which reduce `partials` floats.
struct TileGrid {
  int columns = 1, blocks = 1;
  int threads = 0;
  std::size_t shared_bytes = 0, partials = 0;
  bool early = false;  // as Launch
};
// Of a kernel whose last argument is the reduce space.
template <typename... Parameters, typename... Arguments>
TileLaunch make_launch(void (*kernel)(Parameters...), const TileGrid& grid, const cudaDeviceProp& device,
                       const Arguments&... arguments) {
  // One limit for a kernel, whatever the shape: launches of several shapes share it.
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

// The same, and then total(partials, stream), which adds up what the blocks left in the reduce space.
template <typename Total>
TileLaunch with_total(const TileLaunch& launch, const Total& total) {
  return {launch.partials, [=](ReduceSpace space, cudaStream_t stream) {
            launch.run(space, stream);
            total(static_cast<const float*>(space.partials), stream);
          }};
}

}  // namespace redline::backend::cuda
