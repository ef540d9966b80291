#include "backend/cuda/kernels/stem_conv.h"

#include <algorithm>
#include <array>

#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/tensor_map.h"
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {
namespace {

// A filter row is taken for eight pixels of four channels, the first with weights of zero: 32 values deep,
// two products of sixteen, and windows begin at an even pixel. Two groups of four warps multiply; a warp
// feeds them by the copy engine, whole image rows into the middle of rows whose ends stay zero.
constexpr int kFilters = 64, kKernel = 7, kPad = 3, kLeft = 4;
constexpr int kPixelBytes = 8;
constexpr int kRowDepth = 32, kDepth = kKernel * kRowDepth;
constexpr int kGroup = 128, kGroups = 2;
constexpr int kBlock = kGroups * kGroup + 32;
constexpr int kLineBytes = kFilters * 2;  // of an output pixel

// kHigh rows of up to kWide output pixels, and what they are made of.
template <int kWidth, int kHeight>
struct Tile {
  static constexpr int kWide = kWidth, kHigh = kHeight;
  static constexpr int kInWide = 2 * kWide + 8, kInHigh = 2 * kHigh + 5;
  static constexpr int kPitch = kInWide * kPixelBytes;
  static constexpr int kInBytes = kPitch * kInHigh;
  static constexpr int kInSpace = (kInBytes + 1023) / 1024 * 1024;
  static constexpr int kZeroSpace = (kPitch + 1023) / 1024 * 1024;  // a row outside the image
  static constexpr int kOutBytes = kWide * kLineBytes;              // of a row
};
template <int kWidth>
using ForwardTile = Tile<kWidth, 8>;
template <int kWidth>
using GradientTile = Tile<kWidth, 4>;
constexpr int kForwardStages = 3, kGradientStages = 2;

template <typename Tile>
constexpr std::size_t forward_shared() {
  return 1024 + kForwardStages * Tile::kInSpace + Tile::kZeroSpace + 2 * kGroups * Tile::kOutBytes;
}
template <typename Tile>
constexpr std::size_t gradient_shared() {
  // compute-sanitizer takes overlapping pieces for a matrix of 1 KiB in a row, which would end beyond this.
  constexpr std::size_t kForSanitizer = 1024;
  return 1024 + kGradientStages * (Tile::kInSpace + Tile::kOutBytes * Tile::kHigh) + Tile::kZeroSpace +
         kForSanitizer;
}

struct Walk {
  int images, h, w;
  __host__ __device__ int out_h() const { return h / 2; }
  __host__ __device__ int out_w() const { return w / 2; }
};

template <typename Tile>
__host__ __device__ int down(const Walk& walk) {
  return (walk.out_h() + Tile::kHigh - 1) / Tile::kHigh;
}
template <typename Tile>
__host__ __device__ int tiles(const Walk& walk) {
  return walk.images * down<Tile>(walk);
}

#ifdef REDLINE_HOPPER
using hopper::Cursor;
using hopper::Pair;

// Where a tile begins, in output rows, and which of its rows lie in the image.
template <typename Tile>
struct Place {
  int y, image, first, end;
  __device__ __forceinline__ Place(const Walk& walk, int tile) {
    y = tile % down<Tile>(walk) * Tile::kHigh;
    image = tile / down<Tile>(walk);
    const int top = 2 * y - kPad;
    first = top < 0 ? -top : 0;
    end = top + Tile::kInHigh > walk.h ? walk.h - top : Tile::kInHigh;
  }
  __device__ __forceinline__ bool has(int row) const { return row >= first && row < end; }
  __device__ __forceinline__ unsigned bytes(const Walk& walk) const {
    return static_cast<unsigned>((end - first) * walk.w) * kPixelBytes;
  }
  __device__ __forceinline__ void load(const Walk& walk, const void* x, std::byte* to,
                                       std::uint64_t* barrier) const {
    const auto* from = static_cast<const std::byte*>(x) +
                       (std::int64_t{image} * walk.h + 2 * y - kPad + first) * walk.w * kPixelBytes;
    for (int row = first; row < end; ++row) {
      hopper::load_bytes(to + row * Tile::kPitch + kLeft * kPixelBytes, from,
                         static_cast<unsigned>(walk.w) * kPixelBytes, barrier);
      from += walk.w * kPixelBytes;
    }
  }
};

// The ends of image rows, which no copy writes.
__device__ __forceinline__ void clear(std::byte* from, int bytes) {
  for (int i = static_cast<int>(threadIdx.x) * 16; i < bytes; i += kBlock * 16)
    *reinterpret_cast<uint4*>(from + i) = uint4{};
  hopper::fence_async();
}

template <int kStages>
__device__ __forceinline__ void init_barriers(hopper::Ring<kStages>& bars) {
  if (threadIdx.x != 0) return;
  bars.init(kGroups);
  hopper::publish_barriers();
}

__device__ __forceinline__ std::byte* aligned_shared() {
  extern __shared__ std::byte dynamic[];
  return hopper::aligned(dynamic);
}

// The first thread beyond the groups that compute fills the ring with the input of this block's tiles, and by
// `more` with that many further bytes each.
template <typename Tile, int kStages, typename More>
__device__ __forceinline__ void feed(const Walk& walk, const void* x, std::byte* in_at,
                                     hopper::Ring<kStages>& bars, unsigned more_bytes, const More& more) {
  using namespace hopper;
  if (threadIdx.x > kGroups * kGroup) return;
  Cursor ring;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles<Tile>(walk);
       tile += static_cast<int>(gridDim.x)) {
    const Place<Tile> place(walk, tile);
    std::uint64_t* full = &bars.full[ring.stage];
    barrier_wait(&bars.empty[ring.stage], ring.parity ^ 1U);
    barrier_expect(full, place.bytes(walk) + more_bytes);
    place.load(walk, x, in_at + ring.stage * Tile::kInSpace, full);
    more(place, ring.stage, full);
    ring.next(kStages);
  }
}

// This thread's part of the weights as products hold them: two for each filter row.
template <typename T>
__device__ __forceinline__ void hold_weights(const void* weights, std::uint32_t (&held)[2 * kKernel][4]) {
  const int lane = threadIdx.x % 32, first = threadIdx.x % kGroup / 32 * 16 + lane / 4;
  const auto* pairs = static_cast<const std::uint32_t*>(weights);
#pragma unroll
  for (int step = 0; step < 2 * kKernel; ++step) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int filter = first + part % 2 * 8;
      const int column = step % 2 * 16 + part / 2 * 8 + lane % 4 * 2;  // of the filter row
      held[step][part] =
          column < 4 ? 0U : pairs[((filter * kKernel + step / 2) * kKernel * 4 + column - 4) / 2];
    }
  }
}

// Sums of two filters over the pixels this thread sees.
struct FilterSums {
  float first[2] = {}, second[2] = {};
  __device__ __forceinline__ void add(int which, float2 value) {
    first[which] += value.x + value.y;
    second[which] = fmaf(value.x, value.x, fmaf(value.y, value.y, second[which]));
  }
};
#endif

template <typename T, typename Tile>
__global__ void __launch_bounds__(kBlock, 1)
    stem_forward_kernel(Walk walk, const void* x, const void* weights, float* sums,
                        const __grid_constant__ CUtensorMap y, ReduceSpace space) {
#ifdef REDLINE_HOPPER
  using namespace hopper;
  constexpr int kPixels = Tile::kWide;
  __shared__ Ring<kForwardStages> bars;
  __shared__ float scratch[kGroups][2][kFilters];
  std::byte* in_at = aligned_shared();
  const std::byte* zeros = in_at + kForwardStages * Tile::kInSpace;
  std::byte* out_at = in_at + kForwardStages * Tile::kInSpace + Tile::kZeroSpace;
  init_barriers(bars);
  clear(in_at, kForwardStages * Tile::kInSpace + Tile::kZeroSpace);
  begin_kernel();
  __syncthreads();
  const int all = tiles<Tile>(walk), stride = static_cast<int>(gridDim.x);
  Cursor ring;
  if (threadIdx.x >= kGroups * kGroup)
    return feed<Tile>(walk, x, in_at, bars, 0, [](const Place<Tile>&, int, std::uint64_t*) {});
  const int group = threadIdx.x / kGroup, lane = threadIdx.x % 32, warp = threadIdx.x % kGroup / 32;
  const bool leader = threadIdx.x % kGroup == 0;
  std::uint32_t held[2 * kKernel][4];
  hold_weights<T>(weights, held);
  FilterSums own;
  int buffer = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < all; tile += stride) {
    const Place<Tile> place(walk, tile);
    barrier_wait(&bars.full[ring.stage], ring.parity);
    for (int row = group; row < Tile::kHigh; row += kGroups) {
      const std::byte* in = in_at + ring.stage * Tile::kInSpace + 2 * row * Tile::kPitch;
      float d[kPixels / 2];
      matrix_begin();
#pragma unroll
      for (int r = 0; r < kKernel; ++r) {
        const std::byte* line = place.has(2 * row + r) ? in + r * Tile::kPitch : zeros;
        multiply<T, false>(d, held[2 * r], plain_matrix(line, 16, 128), r > 0);
        multiply<T, false>(d, held[2 * r + 1], plain_matrix(line + 32, 16, 128), true);
      }
      matrix_commit();
      matrix_wait<0>();
      if (row + kGroups >= Tile::kHigh && leader) barrier_arrive(&bars.empty[ring.stage]);
      if (place.y + row >= walk.out_h()) continue;
      std::byte* out = out_at + (group * 2 + buffer) * Tile::kOutBytes;
      if (leader) wait_stores_read<1>();  // the one before last has left its buffer
      sync_group(2 + group, kGroup);
#pragma unroll
      for (int j = 0; j < kPixels / 8; j += 2) {
        std::uint32_t packed[4];
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const int block = j + part / 2, at = 4 * block + part % 2 * 2;
          const Pair<T> pair = Pair<T>::of(d[at], d[at + 1]);
          float2 stored = pair.floats();
          const int pixel = 8 * block + lane % 4 * 2;
          if (pixel >= walk.out_w()) stored.x = 0.0F;
          if (pixel + 1 >= walk.out_w()) stored.y = 0.0F;
          own.add(part % 2, stored);
          packed[part] = pair.bits();
        }
        // Lane 8m + i: pixel i of the block that matrix m belongs to.
        const int pixel = 8 * (j + lane / 16) + lane % 8, chunk = 2 * warp + lane / 8 % 2;
        store_transposed(out + swizzled(pixel, chunk), packed);
      }
      fence_async();
      sync_group(2 + group, kGroup);
      if (leader) {
        store_box(y, 0, 0, place.y + row, place.image, out);
        commit_stores();
      }
      buffer ^= 1;
    }
    ring.next(kForwardStages);
  }
  if (leader) wait_stores();
  if (sums == nullptr) return;
#pragma unroll
  for (int which = 0; which < 2; ++which) {
#pragma unroll
    for (int offset = 1; offset < 4; offset <<= 1) {
      own.first[which] += __shfl_xor_sync(~0U, own.first[which], offset);
      own.second[which] += __shfl_xor_sync(~0U, own.second[which], offset);
    }
    if (lane % 4 == 0) {
      const int filter = warp * 16 + lane / 4 + which * 8;
      scratch[group][0][filter] = own.first[which];
      scratch[group][1][filter] = own.second[which];
    }
  }
  const auto sync = [] { sync_group(1, kGroups * kGroup); };
  sync();
  const int t = static_cast<int>(threadIdx.x);
  const float mine = t < 2 * kFilters
                         ? scratch[0][t / kFilters][t % kFilters] + scratch[1][t / kFilters][t % kFilters]
                         : 0.0F;
  double total = 0.0;
  if (sum_over_blocks<2 * kFilters>(mine, 0, static_cast<int>(blockIdx.x), stride, space, sync, total)) {
    sums[t] = static_cast<float>(total);
  }
#endif
}

template <typename T, typename Tile>
__global__ void __launch_bounds__(kBlock, 1)
    stem_gradient_kernel(Walk walk, const void* x, const __grid_constant__ CUtensorMap dy, float* partials) {
#ifdef REDLINE_HOPPER
  using namespace hopper;
  constexpr int kDyBytes = Tile::kOutBytes * Tile::kHigh;
  __shared__ Ring<kGradientStages> bars;
  std::byte* dy_at = aligned_shared();
  std::byte* in_at = dy_at + kGradientStages * kDyBytes;
  const std::byte* zeros = in_at + kGradientStages * Tile::kInSpace;
  init_barriers(bars);
  clear(in_at, kGradientStages * Tile::kInSpace + Tile::kZeroSpace);
  begin_kernel();
  __syncthreads();
  const int all = tiles<Tile>(walk), stride = static_cast<int>(gridDim.x);
  Cursor ring;
  if (threadIdx.x >= kGroups * kGroup) {
    return feed<Tile>(walk, x, in_at, bars, kDyBytes,
                      [&](const Place<Tile>& place, int stage, std::uint64_t* full) {
                        load_box(dy_at + stage * kDyBytes, dy, 0, 0, place.y, place.image, full);
                      });
  }
  const int group = threadIdx.x / kGroup, lane = threadIdx.x % 32, warp = threadIdx.x % kGroup / 32;
  const bool leader = threadIdx.x % kGroup == 0;
  constexpr int kSteps = Tile::kWide / 16;
  float d[kKernel][kRowDepth / 2];
#pragma unroll
  for (auto& row : d) {
#pragma unroll
    for (float& value : row) value = 0.0F;
  }
  for (int tile = static_cast<int>(blockIdx.x); tile < all; tile += stride) {
    const Place<Tile> place(walk, tile);
    barrier_wait(&bars.full[ring.stage], ring.parity);
    for (int row = group; row < Tile::kHigh; row += kGroups) {
      const std::byte* in = in_at + ring.stage * Tile::kInSpace + 2 * row * Tile::kPitch;
      const std::byte* gradients = dy_at + ring.stage * kDyBytes + row * Tile::kOutBytes;
      std::uint32_t held[2][4];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        // Lane 8m + i: pixel i of the step's first or second eight.
        const int pixel = step * 16 + lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
        if (step >= 2) matrix_wait<1>();  // these registers are free again
        load_transposed(held[step % 2], gradients + swizzled(pixel, chunk));
        matrix_begin();
#pragma unroll
        for (int r = 0; r < kKernel; ++r) {
          const std::byte* line = place.has(2 * row + r) ? in + r * Tile::kPitch : zeros;
          multiply<T, true>(d[r], held[step % 2], plain_matrix(line + step * 256, 128, 16), true);
        }
        matrix_commit();
      }
      matrix_wait<0>();
    }
    if (leader) barrier_arrive(&bars.empty[ring.stage]);
    ring.next(kGradientStages);
  }
  // The second group's sums go to the first by shared memory, which the ring no longer needs.
  auto* const other = reinterpret_cast<float*>(dy_at);
  const auto each = [&](const auto& body) {
#pragma unroll
    for (int r = 0; r < kKernel; ++r) {
#pragma unroll
      for (int i = 0; i < kRowDepth / 2; ++i) {
        const int filter = warp * 16 + lane / 4 + i % 4 / 2 * 8;
        const int column = r * kRowDepth + i / 4 * 8 + lane % 4 * 2 + i % 2;
        body(d[r][i], filter * kDepth + column);
      }
    }
  };
  sync_group(1, kGroups * kGroup);
  if (group == 1) each([&](float value, int at) { other[at] = value; });
  sync_group(1, kGroups * kGroup);
  if (group != 0) return;
  float* to = partials + std::int64_t{blockIdx.x} * kFilters * kDepth;
  each([&](float value, int at) { to[at] = value + other[at]; });
#endif
}

// A block's totals are those of a filter row, whose first pixel is not one of the filter's.
static_assert(kTotals == kRowDepth);
template <typename T>
__global__ void __launch_bounds__(kThreads) stem_total_kernel(const float* partials, int blocks, T* dw) {
  begin_kernel();
  const int row = static_cast<int>(blockIdx.x), column = static_cast<int>(threadIdx.x);
  const float sum = total_of_blocks(partials, blocks, kFilters * kDepth, row * kRowDepth);
  if (column >= 4 && column < kRowDepth) dw[row * kKernel * 4 + column - 4] = from_float<T>(sum);
}

constexpr int kNarrow = 64, kWidest = 112;

// Calls body.template operator()<T, width>() with the type and the width of tiles.
template <typename Body>
void with_width(const StemShape& shape, const Body& body) {
  const bool narrow = shape.w / 2 <= kNarrow;
  if (shape.type == Type::f16) {
    narrow ? body.template operator()<__half, kNarrow>() : body.template operator()<__half, kWidest>();
  } else {
    narrow ? body.template operator()<__nv_bfloat16, kNarrow>()
           : body.template operator()<__nv_bfloat16, kWidest>();
  }
}

CUtensorMap describe_outputs(const StemShape& shape, const void* y, int wide, int high) {
  return describe_tensor(
      y, shape.type == Type::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
      std::array<std::int64_t, 4>{kFilters, shape.w / 2, shape.h / 2, shape.images},
      std::array<int, 4>{kFilters, wide, high, 1}, /*swizzled=*/true);
}

Walk walk_of(const StemShape& shape) { return {shape.images, shape.h, shape.w}; }

}  // namespace

bool StemShape::possible(const cudaDeviceProp& device) const {
  return device.major == 9 && type != Type::f32 && filters == kFilters && kernel == kKernel && stride == 2 &&
         pad == kPad && h % 2 == 0 && w % 2 == 0 && h > 0 && w > 0 && w / 2 <= kWidest && images > 0;
}

StemForward::StemForward(const StemShape& shape, const cudaDeviceProp& device, const void* x,
                         const void* weights, void* y, float* sums)
    : shape_(shape), x_(x), weights_(weights), sums_(sums) {
  with_width(shape, [&]<typename T, int kWidth>() {
    using Tile = ForwardTile<kWidth>;
    y_ = describe_outputs(shape, y, Tile::kWide, 1);
    blocks_ = std::min(device.multiProcessorCount, tiles<Tile>(walk_of(shape)));
    cudaFuncSetAttribute(stem_forward_kernel<T, Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(forward_shared<Tile>()));
  });
}

std::size_t StemForward::partials() const { return static_cast<std::size_t>(blocks_) * 2 * kFilters; }

void StemForward::run(ReduceSpace space, cudaStream_t stream) const {
  with_width(shape_, [&]<typename T, int kWidth>() {
    using Tile = ForwardTile<kWidth>;
    launch(stem_forward_kernel<T, Tile>,
           {dim3(static_cast<unsigned>(blocks_)), kBlock, forward_shared<Tile>()}, stream, walk_of(shape_),
           x_, weights_, sums_, y_, space);
  });
}

StemWeightGradient::StemWeightGradient(const StemShape& shape, const cudaDeviceProp& device, const void* x,
                                       const void* dy, void* dw, Type dw_type)
    : shape_(shape), x_(x), dw_(dw), dw_type_(dw_type) {
  with_width(shape, [&]<typename T, int kWidth>() {
    using Tile = GradientTile<kWidth>;
    dy_ = describe_outputs(shape, dy, Tile::kWide, Tile::kHigh);
    blocks_ = std::min(device.multiProcessorCount, tiles<Tile>(walk_of(shape)));
    cudaFuncSetAttribute(stem_gradient_kernel<T, Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(gradient_shared<Tile>()));
  });
}

std::size_t StemWeightGradient::partials() const {
  return static_cast<std::size_t>(blocks_) * kFilters * kDepth;
}

void StemWeightGradient::run(float* partials, cudaStream_t stream) const {
  with_width(shape_, [&]<typename T, int kWidth>() {
    using Tile = GradientTile<kWidth>;
    launch(stem_gradient_kernel<T, Tile>,
           {dim3(static_cast<unsigned>(blocks_)), kBlock, gradient_shared<Tile>()}, stream, walk_of(shape_),
           x_, dy_, partials);
  });
  dispatch_type(dw_type_, [&]<typename T>() {
    launch(stem_total_kernel<T>, {dim3(kFilters * kKernel)}, stream, partials, blocks_, static_cast<T*>(dw_));
  });
}

}  // namespace redline::backend::cuda
