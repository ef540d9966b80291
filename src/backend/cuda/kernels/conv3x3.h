// 3x3 convolutions of stride 1 on Hopper, fused with the batch norms around them. Forward reads its input
// through a norm and ReLU, and sums up its output for the next norm; the input gradient is gated by the ReLU
// that it reaches, and summed up for its norm. Also how images are cut into tiles; conv3x3.cu has the kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/tile_launch.h"

namespace redline::backend::cuda {

struct Conv3x3 {
  Type type = Type::f16;          // f16 or bf16
  ImageShape from{};              // what is read
  int to = 0;                     // channels of what is written
  bool gradient = false;          // the input gradient: from.channels filters, which had read `to` channels
  const void* x = nullptr;        // [images, h, w, from]
  const void* weights = nullptr;  // [filters][3][3][channels]
  void* out = nullptr;            // [images, h, w, to]; not over x

  // Forward: the convolution reads relu(norm(x)), rounded as if it had been stored. The norm is computed from
  // its sums, as in AffineAct with `finalizes`.
  NormFinalize norm{};
  void* activated = nullptr;  // ? as x: relu(norm(x)) for later ops
  float* sums = nullptr;      // [2, to]: of what is written, and of its squares
  GatedNorm before{};         // gradient: the norm that it reaches; `out` is gated by relu(affine(y))

  static constexpr int kMost = 512;  // channels
};

// tile_size: one of conv3x3::tile_sizes().
TileLaunch conv3x3_conv(const Conv3x3& work, const cudaDeviceProp& device, int tile_size);

// The weight gradient of a convolution of 64 channels. The norm and ReLU that it read its input through are
// recomputed, so that the activation need not be stored. (With more channels cuDNN is faster, even with the
// norm in a pass of its own.)
struct Conv3x3WeightGrad {
  Type type = Type::f16;  // f16 or bf16
  ImageShape images{};
  const void* x = nullptr;        // [images, h, w, 64]
  const float* affine = nullptr;  // [2, 64]: the convolution read relu(affine(x))
  const void* dy = nullptr;       // as x
  void* dw = nullptr;             // [64][3][3][64]
  Type dw_type = Type::f32;
};

// For shapes that conv3x3::DeepCut allows. Its reduce space needs no counters.
TileLaunch conv3x3_weight_grad(const Conv3x3WeightGrad& work, const cudaDeviceProp& device);

}  // namespace redline::backend::cuda

// How a 3x3 convolution is cut into tiles, and how much of it fits into the shared memory of a block on
// Hopper.
namespace redline::backend::cuda::conv3x3 {

inline constexpr int kTaps = 9;
inline constexpr int kSlice = 64;             // channels that are multiplied at once
inline constexpr int kGroups = 2;             // warp groups that multiply
inline constexpr int kPosition = kSlice * 2;  // bytes of a position: a pixel, or zeros between rows
inline constexpr int kWeightBytes = kSlice * kSlice * 2;
inline constexpr int kFewestStages = 2, kMostStages = 4;
inline constexpr int kMostPositions = 384;  // of a tile with the rows around it: see conv3x3.cuh's Activator
inline constexpr int kTileSizes[] = {232, 216, 208};  // positions that wgmma multiplies at once

// Whether a block keeps all weights in shared memory, and each of its warp groups has its own tiles.
inline bool is_resident(int from, int to) { return from == kSlice && to == kSlice; }

struct Cut {
  int images, h, w, tile_size;
  int rows;  // of a tile

  // Divides an image's rows evenly among as few tiles as possible; 0 rows if not even one fits.
  Cut(const ImageShape& of, int size) : images(of.images), h(of.h), w(of.w), tile_size(size) {
    const int most = std::min((tile_size + 1) / pitch(), h);
    rows = most < 1 ? 0 : divide(h, divide(h, most));
  }

  __host__ __device__ static int divide(int a, int b) { return (a + b - 1) / b; }
  __host__ __device__ int pitch() const { return w + 1; }           // positions from row to row
  __host__ __device__ int down() const { return divide(h, rows); }  // tiles of an image
  __host__ __device__ int tiles() const { return images * down(); }
  // Positions of a tile, without and with the rows around it.
  __host__ __device__ int positions() const { return rows * pitch(); }
  __host__ __device__ int halo_positions() const { return (rows + 2) * pitch(); }
  // A slice has a position of zeros, aligned, then the positions of its rows and of the rows around them.
  __host__ __device__ int slice_bytes() const {
    return 1024 + divide(halo_positions() * kPosition, 1024) * 1024;
  }
  // A product that is put in order for the store. That may write eight positions beyond the tile.
  __host__ __device__ int out_bytes() const { return (tile_size + 8) * kPosition; }
};

// Dynamic shared memory of a block: all of it, less what the kernels declare statically.
inline constexpr int kMostShared = (227 << 10) - (5 << 10);

inline int shared_bytes(const Cut& cut, int x_stages) {
  // Products also read a few positions behind the last slice; those results are dropped.
  const int tail = std::max(0, cut.tile_size - cut.positions() + 1) * kPosition;
  return 1024 + kTaps * kWeightBytes + kGroups * cut.out_bytes() + x_stages * cut.slice_bytes() + tail;
}

// As many stages as shared memory has room for.
inline int most_stages(const Cut& cut) {
  int stages = kMostStages;
  while (stages > 0 && shared_bytes(cut, stages) > kMostShared) --stages;
  return stages;
}

// The tile sizes that can be used, the largest first, which is usually the fastest.
inline std::vector<int> tile_sizes(const ImageShape& from, int to) {
  std::vector<int> found;
  const auto [images, h, w, read] = from;
  const bool channels = is_resident(read, to) || (read % kSlice == 0 && to % (kGroups * kSlice) == 0);
  if (!channels || std::max(read, to) > Conv3x3::kMost || h < 1 || w < 1 || w > 254) return found;
  int rows = 0;
  for (const int size : kTileSizes) {
    const Cut cut(from, size);
    // Not if more than 40% of the products would be padding.
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

// The weight gradient's tiles. A product's depth is the positions of a tile, sixteen at a time.
struct DeepCut : Cut {
  static constexpr int kFewestStages = 2, kMostStages = 4;
  static constexpr int kMostBytes =
      (227 << 10) - (1 << 10);  // of shared memory, less what the kernel declares
  explicit DeepCut(const ImageShape& of) : Cut(of, 240) {}

  __host__ __device__ int depth() const { return divide(positions(), 16) * 16; }
  __host__ __device__ int stage_bytes() const { return slice_bytes() + depth() * kPosition; }
  int shared_bytes(int stages) const { return 1024 + stages * stage_bytes(); }
  int stages() const {
    int found = kMostStages;
    while (found > 0 && shared_bytes(found) > kMostBytes) --found;
    return found;
  }
  // Whether the kernel can be used, with at most 20% of the products being padding.
  bool possible() const {
    return rows > 0 && halo_positions() <= kMostPositions && stages() >= kFewestStages &&
           rows * w * 10 >= depth() * 8;
  }
};

}  // namespace redline::backend::cuda::conv3x3
