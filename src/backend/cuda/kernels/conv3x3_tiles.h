// How a 3x3 convolution is cut into tiles, and what of it fits into the shared memory of a Hopper's
// multiprocessor. See conv3x3.cu.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/cuda/kernels/conv3x3.h"

namespace redline::backend::cuda::conv3x3 {

inline constexpr int kTaps = 9;
inline constexpr int kSlice = 64;             // channels that are multiplied at once
inline constexpr int kGroups = 2;             // warp groups that multiply
inline constexpr int kPosition = kSlice * 2;  // bytes
inline constexpr int kWeightBytes = kSlice * kSlice * 2;
inline constexpr int kFewestStages = 2, kMostStages = 4;
inline constexpr int kMostPositions = 384;  // of a tile with the rows around it: see conv3x3.cu's Activator
inline constexpr int kTileSizes[] = {232, 216, 208};  // positions: what wgmma multiplies at once

// Whether each warp group has tiles of its own, and the block all weights.
inline bool is_resident(int from, int to) { return from == kSlice && to == kSlice; }

struct Cut {
  int images, h, w, tile_size;
  int rows;  // of a tile

  // As many rows as tiles of that size hold, evenly; none where they do not hold one.
  Cut(int count, int height, int width, int size) : images(count), h(height), w(width), tile_size(size) {
    const int most = std::min((tile_size + 1) / pitch(), h);
    rows = most < 1 ? 0 : divide(h, divide(h, most));
  }

  __host__ __device__ static int divide(int a, int b) { return (a + b - 1) / b; }
  __host__ __device__ int pitch() const { return w + 1; }
  __host__ __device__ int down() const { return divide(h, rows); }
  __host__ __device__ int tiles() const { return images * down(); }
  // Of a tile, and with the rows around it.
  __host__ __device__ int positions() const { return rows * pitch(); }
  __host__ __device__ int halo_positions() const { return (rows + 2) * pitch(); }
  // Of a slice: one position of zeros, and those of its rows and of the rows around them.
  __host__ __device__ int slice_bytes() const {
    return 1024 + divide(halo_positions() * kPosition, 1024) * 1024;
  }
  // Of a product that is put in order for the store; it is written eight positions further.
  __host__ __device__ int out_bytes() const { return (tile_size + 8) * kPosition; }
};

// Of a block, less what the kernels declare themselves.
inline constexpr int kMostShared = (227 << 10) - (5 << 10);

inline int shared_bytes(const Cut& cut, int x_stages) {
  // Products read some positions behind the last slice, for nothing.
  const int tail = std::max(0, cut.tile_size - cut.positions() + 1) * kPosition;
  return 1024 + kTaps * kWeightBytes + kGroups * cut.out_bytes() + x_stages * cut.slice_bytes() + tail;
}

// As many stages as shared memory has room for.
inline int most_stages(const Cut& cut) {
  int stages = kMostStages;
  while (stages > 0 && shared_bytes(cut, stages) > kMostShared) --stages;
  return stages;
}

// The sizes of tiles that can be used, the largest first, which is the fastest most often.
inline std::vector<int> tile_sizes(int h, int w, int from, int to) {
  std::vector<int> found;
  const bool resident = is_resident(from, to);
  const bool channels = resident || (from % kSlice == 0 && to % (kGroups * kSlice) == 0);
  if (!channels || std::max(from, to) > Conv3x3::kMost || h < 1 || w < 1 || w > 254) return found;
  int rows = 0;
  for (const int size : kTileSizes) {
    const Cut cut(1, h, w, size);
    // Products that are mostly of padding are none to choose.
    if (cut.rows == 0 || cut.rows * w * 10 < size * 6 || most_stages(cut) < kFewestStages ||
        cut.halo_positions() > kMostPositions) {
      continue;
    }
    if (!found.empty() && cut.rows == rows) found.pop_back();  // a smaller one holds as much
    found.push_back(size);
    rows = cut.rows;
  }
  return found;
}

// The weight gradient's tiles: depth is multiplied sixteen positions at a time.
struct DeepCut : Cut {
  static constexpr int kFewestStages = 2, kMostStages = 4;
  static constexpr int kMostBytes =
      (227 << 10) - (1 << 10);  // of shared memory, less what the kernel declares
  DeepCut(int count, int height, int width) : Cut(count, height, width, 240) {}

  __host__ __device__ int depth() const { return divide(positions(), 16) * 16; }
  __host__ __device__ int stage_bytes() const { return slice_bytes() + depth() * kPosition; }
  int shared_bytes(int stages) const { return 1024 + stages * stage_bytes(); }
  int stages() const {
    int found = kMostStages;
    while (found > 0 && shared_bytes(found) > kMostBytes) --found;
    return found;
  }
  // Where it can be used, and products are not mostly of padding.
  bool possible(int from, int to) const {
    return from == kSlice && to == kSlice && rows > 0 && halo_positions() <= kMostPositions &&
           stages() >= kFewestStages && rows * w * 10 >= depth() * 8;
  }
};

}  // namespace redline::backend::cuda::conv3x3
