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
inline constexpr int kStaged = 64;  // positions that a warp group stores at once
inline constexpr int kStageBytes = kStaged * kPosition;
inline constexpr int kMostStages = 6;
inline constexpr int kTileSizes[] = {232, 216, 208};  // positions: what wgmma multiplies at once

// Whether each warp group has tiles of its own, and the block all weights.
inline bool is_resident(int from, int to) { return from == kSlice && to == kSlice; }

struct Cut {
  int images, h, w, rows;  // rows of a tile
  unsigned magic;          // 65536 / pitch, rounded up

  // As many rows as tiles of that size hold, evenly; none where they do not hold one.
  Cut(int count, int height, int width, int tile_size) : images(count), h(height), w(width) {
    const int most = std::min((tile_size + 1) / pitch(), h);
    rows = most < 1 ? 0 : divide(h, divide(h, most));
    magic = static_cast<unsigned>(divide(65536, pitch()));
  }

  __host__ __device__ static int divide(int a, int b) { return (a + b - 1) / b; }
  __host__ __device__ int pitch() const { return w + 1; }
  __host__ __device__ int down() const { return divide(h, rows); }
  __host__ __device__ int tiles() const { return images * down(); }
  // The pixel of a tile that a position is: there is one less for every row before it.
  __host__ __device__ int pixel(int position) const {
    return position - static_cast<int>(static_cast<unsigned>(position) * magic >> 16);
  }
  // Of a slice: one position of zeros, and the positions of its rows and of those around them.
  __host__ __device__ int slice_bytes() const {
    return 1024 + divide((rows + 2) * pitch() * kPosition, 1024) * 1024;
  }
};

// Of a block, less what the kernels declare themselves.
inline int most_shared(bool resident) { return (227 << 10) - (resident ? 2 << 10 : 6 << 10); }

inline int shared_bytes(const Cut& cut, int tile_size, int x_stages) {
  // Products read some positions behind the last slice, for nothing.
  const int tail = std::max(0, tile_size - cut.rows * cut.pitch() + 1) * kPosition;
  return 1024 + kTaps * kWeightBytes + kGroups * kStageBytes + x_stages * cut.slice_bytes() + tail;
}

// As many stages as shared memory has room for.
inline int most_stages(const Cut& cut, int tile_size, bool resident) {
  int stages = kMostStages;
  while (stages > 0 && shared_bytes(cut, tile_size, stages) > most_shared(resident)) --stages;
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
    if (cut.rows == 0 || cut.rows * w * 10 < size * 6 || most_stages(cut, size, resident) < 3) continue;
    if (!found.empty() && cut.rows == rows) found.pop_back();  // a smaller one holds as much
    found.push_back(size);
    rows = cut.rows;
  }
  return found;
}

}  // namespace redline::backend::cuda::conv3x3
