#include "backend/cuda/kernels/conv3x3.h"

#include <algorithm>
#include <array>

#include "backend/cuda/kernels/conv3x3_tiles.h"
#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/tensor_map.h"
#include "backend/cuda/kernels/vec.cuh"

// A tile is some rows of an image. Of it and the rows around it TMA brings 64 channels at a time into shared
// memory, one position of 128 swizzled bytes for every pixel and one of zeros behind every row, which is the
// padding of both rows that it lies between. A tap of the filter is then the same tile some positions further
// on: it moves the start of wgmma's descriptor. A norm and ReLU are applied in place, once for all nine taps.
//
// The product is transposed: filters are its rows (64 for a warp group), positions its columns. What is
// computed between rows is dropped. With 64 channels all weights stay in shared memory and the two warp
// groups have tiles of their own. With more, the groups have 64 filters each of the same tile, and weights
// come through a ring. Either way they multiply in turns, and one stores while the other multiplies.
namespace redline::backend::cuda {
namespace {

using namespace conv3x3;

constexpr int kGroup = 128, kConsumers = kGroups * kGroup;  // threads
constexpr int kBlock = kConsumers + kGroup;  // a warp that feeds activations, and one that feeds weights
constexpr int kPieces = kSlice / 8;          // of sixteen bytes, of a position

#ifdef REDLINE_HOPPER

using hopper::Cursor;
using hopper::Pair;

// A tile, and where in its image it lies.
struct Tile {
  int image, top;  // top: its first row
  __device__ __forceinline__ Tile(const Cut& cut, int index)
      : image(index / cut.down()), top(index % cut.down() * cut.rows) {}
};

// Of every kStep-th position from `first` on, those that are pixels of a row: a bit each.
template <int kStep>
__device__ __forceinline__ unsigned pixels_of(const Cut& cut, int first, int count) {
  unsigned bits = 0;
  for (int k = 0; k < count; ++k) {
    if ((first + k * kStep) % cut.pitch() < cut.w) bits |= 1U << k;
  }
  return bits;
}
// Those of them that lie before position `end`.
template <int kStep>
__device__ __forceinline__ unsigned bits_before(int first, int end) {
  const int count = max(0, end - first + kStep - 1) / kStep;
  return count < 32 ? (1U << count) - 1U : ~0U;
}

struct Barriers {
  std::uint64_t x_full[kMostStages], x_ready[kMostStages], x_empty[kMostStages];
  std::uint64_t weights_full[kTaps], weights_empty[kTaps];
};

template <bool kResident>
struct Channels {
  // Scales and biases of the k-th two channels of a piece: {scale, bias, scale, bias}.
  float4 norm[4][kResident ? kPieces : Conv3x3::kMost / 8];  // of what is read
  float4 gate[4][kGroups * kPieces];                         // of what is written
};

// Where the parts of shared memory lie.
struct Parts {
  std::byte *weights, *staged, *x;
  __device__ explicit Parts(std::byte* dynamic) {
    weights = hopper::aligned(dynamic);
    staged = weights + kTaps * kWeightBytes;
    x = staged + kGroups * kStageBytes;
  }
  // The first position of a stage; the one before it is zeros.
  __device__ __forceinline__ std::byte* stage(const Cut& cut, int index) const {
    return x + index * cut.slice_bytes() + 1024;
  }
};

// The thread that brings activations, a slice of a tile after the other, and into L2 what gates a gradient.
__device__ void load_activations(const Conv3x3& work, const Cut& cut, const CUtensorMap& x,
                                 const Parts& parts, Barriers& bars, int x_stages) {
  using namespace hopper;
  const auto bytes = static_cast<unsigned>((cut.rows + 2) * cut.pitch() * kPosition);
  Cursor at;
  for (int i = static_cast<int>(blockIdx.y); i < cut.tiles(); i += static_cast<int>(gridDim.y)) {
    const Tile tile(cut, i);
    if (work.gradient && blockIdx.x == 0) {
      const int rows = min(cut.rows, cut.h - tile.top);
      prefetch_bytes(static_cast<const std::byte*>(work.y) +
                         (std::int64_t{tile.image} * cut.h + tile.top) * cut.w * work.to * 2,
                     static_cast<unsigned>(rows * cut.w * work.to * 2));
    }
    for (int slice = 0; slice < work.from / kSlice; ++slice) {
      barrier_wait(&bars.x_empty[at.stage], at.parity ^ 1U);
      barrier_expect(&bars.x_full[at.stage], bytes);
      load_box(parts.stage(cut, at.stage), x, slice * kSlice, 0, tile.top - 1, tile.image,
               &bars.x_full[at.stage]);
      at.next(x_stages);
    }
  }
}

// The thread that brings weights: those of 64 filters for a slice of the channels, tap by tap, as the groups
// take turns.
template <bool kGradient, bool kResident>
__device__ void load_weights(const Conv3x3& work, const CUtensorMap& weights, std::byte* to, Barriers& bars,
                             int tiles) {
  using namespace hopper;
  const int inner = kGradient ? work.to : work.from;  // of the tensor of weights
  const int slices = work.from / kSlice;
  unsigned turn = 0;
  const auto load_turn = [&](int slice, int filter) {
    for (int tap = 0; tap < kTaps; ++tap) {
      barrier_wait(&bars.weights_empty[tap], (turn & 1U) ^ 1U);
      barrier_expect(&bars.weights_full[tap], kWeightBytes);
      const int column = tap * inner + (kGradient ? filter : slice * kSlice);
      load_tile(to + tap * kWeightBytes, weights, column, kGradient ? slice * kSlice : filter,
                &bars.weights_full[tap]);
    }
    ++turn;
  };
  const int filter = static_cast<int>(blockIdx.x) * kGroups * kSlice;
  if constexpr (kResident) {
    load_turn(0, filter);
  } else {
    for (int tile = static_cast<int>(blockIdx.y); tile < tiles; tile += static_cast<int>(gridDim.y)) {
      for (int slice = 0; slice < slices; ++slice) {
        for (int group = 0; group < kGroups; ++group) load_turn(slice, filter + group * kSlice);
      }
    }
  }
}

__device__ __forceinline__ void sync_consumers() { hopper::sync_group(1, kConsumers); }

// The groups multiply in turns, so that one stores while the other multiplies.
__device__ __forceinline__ void wait_turn(int group) { hopper::sync_group(4 + group, kConsumers); }
__device__ __forceinline__ void give_turn(int group) { hopper::arrive_group(4 + group, kConsumers); }

// Of eight channels, over the positions that a thread stored.
struct Sums {
  float first[8] = {}, second[8] = {};  // second: of products with y, or of squares
};

// What one warp group does: it applies the norm, multiplies, and stores what it has.
template <typename T, bool kGradient, bool kResident, int kTile>
struct Consumer {
  static constexpr bool kActivates = !kGradient;
  const Conv3x3& work;
  const Cut& cut;
  const Parts& parts;
  Barriers& bars;
  const Channels<kResident>& channels;
  const CUtensorMap& kept;
  int x_stages;
  int group = static_cast<int>(threadIdx.x) / kGroup;
  int thread = static_cast<int>(threadIdx.x) % kGroup;
  int piece = thread % kPieces;
  int local = kResident ? 0 : group * kSlice;  // the group's first channel of the block's
  int channel = static_cast<int>(blockIdx.x) * kGroups * kSlice + local;
  // Threads that apply the norm to a slice, and positions that are activated and stored at once.
  static constexpr int kActivators = kResident ? kGroup : kConsumers;
  static constexpr int kActivated = kActivators / kPieces, kStep = kGroup / kPieces;
  unsigned stored_pixels = pixels_of<kStep>(cut, thread / kPieces, (kTile + kStep - 1) / kStep);
  unsigned activated_pixels =
      kActivates ? pixels_of<kActivated>(cut, static_cast<int>(threadIdx.x) % kActivators / kPieces, 32) : 0U;
  Sums sums = {};

  // --- The norm and ReLU of a slice, in place: by the group that has the tile, or by both ---

  __device__ __forceinline__ void activate(int index, int slice, const Cursor& at) const {
    using namespace hopper;
    constexpr int kAtOnce = 4;
    const Tile tile(cut, index);
    const int first = static_cast<int>(threadIdx.x) % kActivators / kPieces;
    // Rows outside of the image stay zeros, and so does what lies between rows.
    const int end = min(cut.rows + 2, cut.h - tile.top + 1) * cut.pitch();
    unsigned wanted = activated_pixels & bits_before<kActivated>(first, end);
    if (tile.top == 0) wanted &= ~bits_before<kActivated>(first, cut.pitch());
    float4 norm[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) norm[k] = channels.norm[k][slice * kPieces + piece];
    barrier_wait(&bars.x_full[at.stage], at.parity);
    std::byte* x = parts.stage(cut, at.stage) + swizzled(first, piece);  // a step leaves the swizzle as it is
    for (int i = first; i < end; i += kAtOnce * kActivated) {
      uint4 bits[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        bits[k] = uint4{};
        if ((wanted >> k & 1U) != 0U)
          bits[k] = *reinterpret_cast<const uint4*>(x + k * kActivated * kPosition);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        std::uint32_t* pairs = &bits[k].x;
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
          const float2 y = Pair<T>::of_bits(pairs[pair]).floats();
          pairs[pair] =
              Pair<T>::relu_of(fmaf(y.x, norm[pair].x, norm[pair].y), fmaf(y.y, norm[pair].z, norm[pair].w))
                  .bits();
        }
        if ((wanted >> k & 1U) != 0U) *reinterpret_cast<uint4*>(x + k * kActivated * kPosition) = bits[k];
      }
      x += kAtOnce * kActivated * kPosition;
      wanted >>= kAtOnce;
    }
    fence_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(&bars.x_ready[at.stage]);
  }
  // What was activated, of the tile's own rows, for later ops; by one thread of those who read it.
  __device__ __forceinline__ bool keeps() const {
    return kActivates && work.activated != nullptr && blockIdx.x == 0 && thread == 0 &&
           (kResident || group == 0);
  }
  __device__ __forceinline__ void keep_activated(const Tile& tile, int slice, int stage) const {
    if (!keeps()) return;
    hopper::store_box(kept, slice * kSlice, 0, tile.top, tile.image,
                      parts.stage(cut, stage) + cut.pitch() * kPosition);
    hopper::commit_stores();
  }

  // --- The product ---

  // One tap of one slice.
  __device__ __forceinline__ void multiply_tap(float (&d)[kTile / 2], const std::byte* weights,
                                               const std::byte* x, int tap, bool add) const {
    using namespace hopper;
    const int down = tap / 3 - 1, right = tap % 3 - 1;
    const int shift = (kGradient ? -1 : 1) * (down * cut.pitch() + right);
    const std::byte* from = x + (cut.pitch() + shift) * kPosition;
#pragma unroll
    for (int step = 0; step < kSlice / 16; ++step) {
      const std::uint64_t a = kGradient ? descriptor(weights + step * 2048, kWeightBytes, 1024)
                                        : descriptor(weights + step * 32, 16, 1024);
      wgmma_wide<T, kGradient>(d, a, descriptor(from + step * 32, 16, 1024), add || step > 0);
    }
  }

  // All taps of a slice, in this group's turn.
  __device__ __forceinline__ void multiply_slice(float (&d)[kTile / 2], const Tile& tile, int slice,
                                                 const Cursor& x_ring) const {
    using namespace hopper;
    wait_turn(group);
    barrier_wait(&(kActivates ? bars.x_ready : bars.x_full)[x_ring.stage], x_ring.parity);
    keep_activated(tile, slice, x_ring.stage);
    const std::byte* x = parts.stage(cut, x_ring.stage);
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      if constexpr (!kResident) barrier_wait(&bars.weights_full[tap], static_cast<unsigned>(group));
      if (!kResident || tap == 0) wgmma_fence();
      multiply_tap(d, parts.weights + tap * kWeightBytes, x, tap, slice + tap > 0);
      if (!kResident || tap == kTaps - 1) wgmma_commit();
      if (!kResident && tap > 0) {
        wgmma_wait<1>();
        if (thread == 0) barrier_arrive(&bars.weights_empty[tap - 1]);
      }
    }
    give_turn(1 - group);
  }
  __device__ __forceinline__ void finish_slice(const Cursor& x_ring) const {
    using namespace hopper;
    wgmma_wait<0>();
    if (keeps()) wait_stores_read<0>();
    if (thread == 0) {
      if constexpr (!kResident) barrier_arrive(&bars.weights_empty[kTaps - 1]);
      barrier_arrive(&bars.x_empty[x_ring.stage]);
    }
  }

  // --- What is stored ---

  // Rounds a few positions of the product and lays them out position by position.
  template <int kBegin, int kCount>
  __device__ __forceinline__ void stage(const float (&d)[kTile / 2], std::byte* staged) const {
    const int lane = thread % 32, warp = thread / 32;
#pragma unroll
    for (int j = 0; j < kCount; j += 2) {
      std::uint32_t rounded[4];
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int from = 4 * std::min(kBegin + j + part / 2, kTile / 8 - 1) + part % 2 * 2;
        rounded[part] = Pair<T>::of(d[from], d[from + 1]).bits();
      }
      const int position = (j + lane / 16) * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
      hopper::stmatrix_transposed(staged + hopper::swizzled(position, chunk), rounded);
    }
  }

  static constexpr int kEach = kStaged * kPieces / kGroup;  // pieces that a thread stores at once
  using Ahead = uint4[kEach];  // of gradients: what gates the pieces that a thread stores next
  // kBegin: the first, of eight positions.
  static constexpr int count_from(int begin) { return std::min(kStaged / 8, kTile / 8 - begin); }
  static constexpr int pieces_from(int begin) {
    return (count_from(begin) * 8 * kPieces + kGroup - 1) / kGroup;
  }

  // The i-th piece that the thread stores in the part that begins there, of the tile's.
  __device__ __forceinline__ int offset(int begin, int i) const {
    return cut.pixel(begin * 8 + i * kStep + thread / kPieces) * (work.to / 8);
  }
  static __device__ __forceinline__ bool has(unsigned pixels, int begin, int i) {
    return (pixels >> (begin * 8 / kStep + i) & 1U) != 0U;
  }
  __device__ __forceinline__ std::int64_t first_piece(const Tile& tile) const {
    return (std::int64_t{tile.image} * cut.h + tile.top) * cut.w * (work.to / 8) + channel / 8 + piece;
  }

  template <int kBegin>
  __device__ __forceinline__ void look_ahead(const uint4* y, unsigned pixels, Ahead& ahead) const {
    if constexpr (kGradient && kBegin < kTile / 8) {
#pragma unroll
      for (int i = 0; i < pieces_from(kBegin); ++i) {
        ahead[i] = uint4{};
        if (has(pixels, kBegin, i)) ahead[i] = __ldg(y + offset(kBegin, i));
      }
    }
  }

  // Gates where that is wanted, and adds up.
  __device__ __forceinline__ void finish_piece(uint4& bits, const uint4& y) {
    std::uint32_t* pairs = &bits.x;
    const std::uint32_t* inputs = &y.x;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float2 value = Pair<T>::of_bits(pairs[k]).floats(), factor = value;
      if constexpr (kGradient) {
        factor = Pair<T>::of_bits(inputs[k]).floats();
        const float4 gate = channels.gate[k][local / 8 + piece];
        if (fmaf(factor.x, gate.x, gate.y) <= 0.0F) value.x = 0.0F;
        if (fmaf(factor.y, gate.z, gate.w) <= 0.0F) value.y = 0.0F;
        pairs[k] = Pair<T>::of(value.x, value.y).bits();
      }
      sums.first[2 * k] += value.x;
      sums.first[2 * k + 1] += value.y;
      sums.second[2 * k] = fmaf(value.x, factor.x, sums.second[2 * k]);
      sums.second[2 * k + 1] = fmaf(value.y, factor.y, sums.second[2 * k + 1]);
    }
  }

  // The part of a tile that begins with the kBegin-th eight positions, and those behind it. What the next
  // part is gated by is on its way. `pixels`: of the tile that are stored; `to`, `y`: the first of them.
  template <int kBegin>
  __device__ __forceinline__ void store_from(const float (&d)[kTile / 2], unsigned pixels, uint4* to,
                                             const uint4* y, const Ahead& now, const Ahead& next) {
    constexpr int kCount = count_from(kBegin), kThen = kBegin + kCount, kMine = pieces_from(kBegin);
    std::byte* staged = parts.staged + group * kStageBytes;
    stage<kBegin, kCount>(d, staged);
    hopper::sync_group(2 + group, kGroup);
#pragma unroll
    for (int begin = 0; begin < kMine; begin += 2) {
      uint4 bits[2];
#pragma unroll
      for (int i = begin; i < std::min(begin + 2, kMine); ++i) {
        bits[i - begin] =
            *reinterpret_cast<const uint4*>(staged + hopper::swizzled(i * kStep + thread / kPieces, piece));
        if (!has(pixels, kBegin, i)) bits[i - begin] = uint4{};
      }
#pragma unroll
      for (int i = begin; i < std::min(begin + 2, kMine); ++i) {
        finish_piece(bits[i - begin], now[i]);
        if (has(pixels, kBegin, i)) to[offset(kBegin, i)] = bits[i - begin];
      }
    }
    Ahead later;
    look_ahead<kThen + count_from(kThen)>(y, pixels, later);
    hopper::sync_group(2 + group, kGroup);
    if constexpr (kThen < kTile / 8) store_from<kThen>(d, pixels, to, y, next, later);
  }

  __device__ void run() {
    if (group == 1) give_turn(0);
    if constexpr (kResident) {
      for (auto& full : bars.weights_full) hopper::barrier_wait(&full, 0);
    }
    // The group's own units, of a slice of a tile each, one after the other.
    const int slices = kResident ? 1 : work.from / kSlice, stride = static_cast<int>(gridDim.y);
    const int step = kResident ? kGroups : 1;
    int index = static_cast<int>(blockIdx.y) + (kResident ? group * stride : 0), slice = 0;
    Cursor at;
    if (kResident && group == 1) at.next(x_stages);
    const auto advance = [&](int& of_tile, int& of_slice, Cursor& cursor) {
      for (int i = 0; i < step; ++i) cursor.next(x_stages);
      if (++of_slice == slices) {
        of_slice = 0;
        of_tile += step * stride;
      }
    };
    int next_index = index, next_slice = slice;
    Cursor next_at = at;
    if (kActivates && index < cut.tiles()) activate(index, slice, at);
    while (index < cut.tiles()) {
      float d[kTile / 2];
      const Tile tile(cut, index);
      const unsigned pixels =
          stored_pixels & bits_before<kStep>(thread / kPieces, min(cut.rows, cut.h - tile.top) * cut.pitch());
      uint4* to = static_cast<uint4*>(work.out) + first_piece(tile);
      const uint4* y = kGradient ? static_cast<const uint4*>(work.y) + first_piece(tile) : nullptr;
      Ahead now, next;
      look_ahead<0>(y, pixels, now);
      look_ahead<count_from(0)>(y, pixels, next);
      for (int i = 0; i < slices; ++i) {
        advance(next_index, next_slice, next_at);
        const bool more = kActivates && next_index < cut.tiles();
        if (!kResident && more) activate(next_index, next_slice, next_at);
        multiply_slice(d, tile, i, at);
        if (kResident && more) activate(next_index, next_slice, next_at);
        finish_slice(at);
        advance(index, slice, at);
      }
      hopper::settle(d);
      store_from<0>(d, pixels, to, y, now, next);
    }
    if (keeps()) hopper::wait_stores();
  }
};

// The sums over all threads and blocks, in a fixed order.
template <bool kGradient, bool kResident>
__device__ void finish_sums(const Conv3x3& work, const Sums& sums, std::byte* scratch, ReduceSpace space) {
  auto& of_warps = *reinterpret_cast<float(*)[kConsumers / 32][2][kSlice]>(scratch);
  const int t = static_cast<int>(threadIdx.x), lane = t % 32, warp = t / 32, group = t / kGroup;
  const int block_channel = static_cast<int>(blockIdx.x) * kGroups * kSlice;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const int c = lane % kPieces * 8 + k;
    float first = sums.first[k], second = sums.second[k];
    if constexpr (kGradient)
      second -= work.saved[block_channel + (kResident ? 0 : group * kSlice) + c] * first;
#pragma unroll
    for (int offset = kPieces; offset < 32; offset <<= 1) {
      first += __shfl_xor_sync(~0U, first, offset);
      second += __shfl_xor_sync(~0U, second, offset);
    }
    if (lane < kPieces) {
      of_warps[warp][0][c] = first;
      of_warps[warp][1][c] = second;
    }
  }
  sync_consumers();
  constexpr int kCount = kResident ? kGroup : kConsumers;
  const int which = t % kGroup / kSlice, c = t % kSlice, first_warp = kResident ? 0 : group * kGroup / 32;
  float mine = 0.0F;
  for (int w = 0; w < (kResident ? kConsumers : kGroup) / 32; ++w) mine += of_warps[first_warp + w][which][c];
  double totals[1] = {};
  const float of_one[1] = {mine};
  if (!sum_over_blocks<kCount>(of_one, space, sync_consumers, totals)) return;
  const double total = totals[0];
  const int channel = block_channel + (kResident ? 0 : group * kSlice) + c;
  if constexpr (!kGradient) {
    work.sums[which * work.to + channel] = static_cast<float>(total);
  } else if (which == 0) {
    work.dbeta[channel] = static_cast<float>(total);
  } else {
    work.dgamma[channel] = static_cast<float>(total * work.saved[work.to + channel]);
  }
}

// By the threads that multiply, while the first tile is on its way.
template <bool kGradient, bool kResident>
__device__ void fill_channels(const Conv3x3& work, Channels<kResident>& channels) {
  const int t = static_cast<int>(threadIdx.x);
  if constexpr (kGradient) {
    const int c = static_cast<int>(blockIdx.x) * kGroups * kSlice + 2 * t;
    if (t < (kResident ? 1 : kGroups) * kSlice / 2) {
      channels.gate[t % 4][t / 4] = {work.affine[c], work.affine[work.to + c], work.affine[c + 1],
                                     work.affine[work.to + c + 1]};
    }
  } else {
    for (int c = t; c < work.from; c += kConsumers) {
      const ChannelNorm norm = norm_of(work.norm, c);
      if (blockIdx.x == 0 && blockIdx.y == 0) keep(work.norm, c, norm);
      reinterpret_cast<float2*>(&channels.norm[c % 8 / 2][c / 8])[c % 2] = {norm.scale, norm.bias};
    }
  }
}

#endif

template <typename T, bool kGradient, bool kResident, int kTile>
__global__ void __launch_bounds__(kBlock, 1)
    conv3x3_kernel(const __grid_constant__ Conv3x3 work, const __grid_constant__ Cut cut,
                   const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap kept,
                   const __grid_constant__ CUtensorMap weights, int x_stages, ReduceSpace space) {
#ifdef REDLINE_HOPPER
  using namespace hopper;
  extern __shared__ std::byte dynamic[];
  __shared__ Barriers bars;
  __shared__ Channels<kResident> channels;
  const Parts parts(dynamic);
  const int t = static_cast<int>(threadIdx.x);
  if (t == 0) {
    for (int i = 0; i < x_stages; ++i) {
      barrier_init(&bars.x_full[i], 1);
      barrier_init(&bars.x_ready[i], (kResident ? kGroup : kConsumers) / 32);
      barrier_init(&bars.x_empty[i], kResident ? 1 : kGroups);
    }
    for (int tap = 0; tap < kTaps; ++tap) {
      barrier_init(&bars.weights_full[tap], 1);
      barrier_init(&bars.weights_empty[tap], 1);
    }
    publish_barriers();
  }
  if (t < x_stages * kPieces)
    *reinterpret_cast<uint4*>(parts.stage(cut, t / kPieces) - kPosition + t % kPieces * 16) = uint4{};
  fence_async();
  __syncthreads();
  begin_kernel();
  constexpr int kFew = 24, kMany = 240;
  static_assert(kFew * kGroup + kMany * kConsumers <= 65536);
  if (t >= kConsumers) {
    give_registers<kFew>();
    if (t == kConsumers) load_activations(work, cut, x, parts, bars, x_stages);
    if (t == kConsumers + 32)
      load_weights<kGradient, kResident>(work, weights, parts.weights, bars, cut.tiles());
    return;
  }
  take_registers<kMany>();
  fill_channels<kGradient, kResident>(work, channels);
  sync_consumers();
  Consumer<T, kGradient, kResident, kTile> consumer{work, cut, parts, bars, channels, kept, x_stages};
  consumer.run();
  sync_consumers();
  finish_sums<kGradient, kResident>(work, consumer.sums, parts.staged, space);
#endif
}

// Calls body(kernel) with the kernel of a work's type, kind and tile size.
template <typename Body>
void with_kernel(const Conv3x3& work, int tile_size, const Body& body) {
  const auto of_tile = [&]<typename T, bool kResident, int kTile>() {
    work.gradient ? body(conv3x3_kernel<T, true, kResident, kTile>)
                  : body(conv3x3_kernel<T, false, kResident, kTile>);
  };
  const auto of_type = [&]<typename T>() {
    const auto of_size = [&]<bool kResident>() {
      if (tile_size == 208) return of_tile.template operator()<T, kResident, 208>();
      if (tile_size == 216) return of_tile.template operator()<T, kResident, 216>();
      return of_tile.template operator()<T, kResident, 232>();
    };
    is_resident(work.from, work.to) ? of_size.template operator()<true>()
                                    : of_size.template operator()<false>();
  };
  work.type == Type::f16 ? of_type.template operator()<__half>()
                         : of_type.template operator()<__nv_bfloat16>();
}

// Blocks that share a tile, each with its own filters.
int columns_of(const Conv3x3& work) { return std::max(1, work.to / (kGroups * kSlice)); }

}  // namespace

Conv3x3Launch::Conv3x3Launch(const Conv3x3& work, const cudaDeviceProp& device, int tile_size)
    : work_(work), tile_size_(tile_size) {
  const bool resident = is_resident(work.from, work.to);
  const Cut cut(work.images, work.h, work.w, tile_size);
  x_stages_ = most_stages(cut, tile_size, resident);
  const int filters = work.gradient ? work.from : work.to, read = work.gradient ? work.to : work.from;
  weights_ = describe_rows(work.weights, work.type, filters, kTaps * read, kSlice);
  const auto describe = [&](const void* data, int rows) {
    return describe_tensor(
        data, work.type == Type::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
        std::array<std::int64_t, 4>{work.from, work.w, work.h, work.images},
        std::array<int, 4>{kSlice, cut.pitch(), rows, 1}, /*swizzled=*/true);
  };
  x_ = describe(work.x, cut.rows + 2);
  kept_ = describe(work.activated, cut.rows);
  blocks_ = std::min(cut.tiles(), std::max(1, device.multiProcessorCount / columns_of(work)));
  shared_bytes_ = static_cast<std::size_t>(shared_bytes(cut, tile_size, x_stages_));
  with_kernel(work_, tile_size_, [&](auto kernel) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_shared(resident));
  });
}

std::size_t Conv3x3Launch::partials() const {
  return static_cast<std::size_t>(blocks_) * 2 * static_cast<std::size_t>(work_.to);
}

void Conv3x3Launch::run(ReduceSpace space, cudaStream_t stream) const {
  const Cut cut(work_.images, work_.h, work_.w, tile_size_);
  with_kernel(work_, tile_size_, [&](auto kernel) {
    launch(kernel,
           {dim3(static_cast<unsigned>(columns_of(work_)), static_cast<unsigned>(blocks_)), kBlock,
            shared_bytes_, false},
           stream, work_, cut, x_, kept_, weights_, x_stages_, space);
  });
}

}  // namespace redline::backend::cuda
