// Shared by the kernels of 3x3 convolutions: where a tile is in its image, and the norm and ReLU that three
// warps apply to a tile in shared memory while others multiply.
#pragma once

#include "backend/cuda/kernels/conv3x3.h"
#include "backend/cuda/kernels/tiles.cuh"

namespace redline::backend::cuda::conv3x3 {

using hopper::kGroup;                       // threads
inline constexpr int kPieces = kSlice / 8;  // of sixteen bytes, of a position
inline constexpr int kActivators = 3;       // warps

#ifdef REDLINE_HOPPER

// A tile, and where in its image it lies.
struct Tile {
  int image, top;  // top: its first row
  REDLINE_DEVICE Tile(const Cut& cut, int index)
      : image(index / cut.down()), top(index % cut.down() * cut.rows) {}
};

// Scales and biases of the k-th two channels of a piece: {scale, bias, scale, bias}.
template <int kChannels>
using NormTable = float4[4][kChannels / 8];

// Applies the norm and ReLU to 64 channels of a tile, in place. The last three warps of a block do it
// together.
template <typename T, int kChannels>
struct Activator {
  static constexpr int kThreads = kActivators * 32, kAtOnce = 4;
  static_assert(kMostPositions == 32 / 2 * kActivators * 8);
  const Cut& cut;
  const NormTable<kChannels>& norms;
  int thread = static_cast<int>(threadIdx.x) - (static_cast<int>(blockDim.x) - kThreads);
  int warp = thread / 32, lane = thread % 32, piece = lane % kPieces;
  unsigned pixels = 0;  // of the thread's positions, those that are pixels of a row

  __device__ Activator(const Cut& of_cut, const NormTable<kChannels>& of_norms)
      : cut(of_cut), norms(of_norms) {
    for (int k = 0; k < 32; ++k) {
      if (position(k) % cut.pitch() < cut.w) pixels |= 1U << k;
    }
  }

  // find(channel) gives its scale and bias.
  template <typename Find>
  __device__ void fill(NormTable<kChannels>& table, int channels, const Find& find) const {
    for (int c = thread; c < channels; c += kThreads)
      reinterpret_cast<float2*>(&table[c % 8 / 2][c / 8])[c % 2] = find(c);
    hopper::sync_group(6, kThreads);
  }

  // Warps take eight positions in turn; of these, a lane has one piece of every fourth.
  REDLINE_DEVICE int position(int k) const {
    return 8 * (kActivators * (k / 2) + warp) + 4 * (k % 2) + lane / kPieces;
  }

  // Rows outside the image stay zero, and so do the positions between rows.
  REDLINE_DEVICE void activate(const Tile& tile, int slice, std::byte* x) const {
    using hopper::Pair;
    const int begin = tile.top == 0 ? cut.pitch() : 0;
    const int end = min(cut.rows + 2, cut.h - tile.top + 1) * cut.pitch();
    float4 norm[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) norm[k] = norms[k][slice * kPieces + piece];
    unsigned wanted = pixels;
    for (int k = 0; position(k) < end; k += kAtOnce, wanted >>= kAtOnce) {
      uint4 bits[kAtOnce];
      std::byte* at[kAtOnce];
      bool inside[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int p = position(k + i);
        inside[i] = (wanted >> i & 1U) != 0U && p >= begin && p < end;
        at[i] = x + hopper::swizzled(p, piece);
        bits[i] = uint4{};
        if (inside[i]) bits[i] = *reinterpret_cast<const uint4*>(at[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        std::uint32_t* pairs = &bits[i].x;
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
          const float2 y = Pair<T>::of_bits(pairs[pair]).floats();
          pairs[pair] =
              Pair<T>::relu_of(fmaf(y.x, norm[pair].x, norm[pair].y), fmaf(y.y, norm[pair].z, norm[pair].w))
                  .bits();
        }
        if (inside[i]) *reinterpret_cast<uint4*>(at[i]) = bits[i];
      }
    }
  }
  // After activate(): each of the warps arrives at `ready`.
  REDLINE_DEVICE void arrive(std::uint64_t* ready) const {
    hopper::fence_async();
    __syncwarp();
    if (lane == 0) hopper::barrier_arrive(ready);
  }
};

#endif

}  // namespace redline::backend::cuda::conv3x3
