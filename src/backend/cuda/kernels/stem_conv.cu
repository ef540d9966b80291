#include "backend/cuda/kernels/stem_conv.h"

#include <algorithm>

#include "backend/cuda/kernels/tiles.cuh"

namespace redline::backend::cuda {
namespace {

// A filter row is taken for eight pixels of four channels, the first with weights of zero: 32 values of K,
// two steps of wgmma, and windows begin at an even pixel. Two groups of four warps multiply. A producer
// thread feeds them by TMA with whole image rows, put into the middle of rows whose ends stay zero.
constexpr int kFilters = 64, kKernel = 7, kPad = 3, kLeft = 4;
constexpr int kPixelBytes = 8;
constexpr int kRowDepth = 32, kDepth = kKernel * kRowDepth;
constexpr int kGroups = 2, kStemBlock = hopper::kConsumers + 32;
constexpr int kLineBytes = kFilters * 2;  // of an output pixel

// kHigh rows of up to kWide output pixels, and what they are made of.
template <int kWidth, int kHeight>
struct TileOf {
  static constexpr int kWide = kWidth, kHigh = kHeight;
  static constexpr int kInWide = 2 * kWide + 8, kInHigh = 2 * kHigh + 5;
  static constexpr int kPitch = kInWide * kPixelBytes;
  static constexpr int kInBytes = kPitch * kInHigh;
  static constexpr int kInSpace = (kInBytes + 1023) / 1024 * 1024;
  static constexpr int kZeroSpace = (kPitch + 1023) / 1024 * 1024;  // a row outside the image
  static constexpr int kOutBytes = kWide * kLineBytes;              // of a row
};
constexpr int kForwardHeight = 8, kForwardStages = 3;
constexpr int kGradientHeight = 4, kGradientStages = 2;

template <typename Tile>
__host__ __device__ int down(const StemShape& shape) {
  return (shape.out_h() + Tile::kHigh - 1) / Tile::kHigh;
}
template <typename Tile>
__host__ __device__ int tiles(const StemShape& shape) {
  return shape.in.images * down<Tile>(shape);
}

#ifdef REDLINE_HOPPER
using namespace hopper;

// Where a tile begins, in output rows, and which of its rows lie in the image.
template <typename Tile>
struct Place {
  int y, image, first, end;
  REDLINE_DEVICE Place(const StemShape& shape, int tile) {
    y = tile % down<Tile>(shape) * Tile::kHigh;
    image = tile / down<Tile>(shape);
    const int top = 2 * y - kPad;
    first = top < 0 ? -top : 0;
    end = top + Tile::kInHigh > shape.in.h ? shape.in.h - top : Tile::kInHigh;
  }
  REDLINE_DEVICE bool has(int row) const { return row >= first && row < end; }
  REDLINE_DEVICE unsigned bytes(const StemShape& shape) const {
    return static_cast<unsigned>((end - first) * shape.in.w) * kPixelBytes;
  }
  REDLINE_DEVICE void load(const StemShape& shape, const void* x, std::byte* to,
                           std::uint64_t* barrier) const {
    const auto* from = static_cast<const std::byte*>(x) +
                       (std::int64_t{image} * shape.in.h + 2 * y - kPad + first) * shape.in.w * kPixelBytes;
    for (int row = first; row < end; ++row) {
      load_bytes(to + row * Tile::kPitch + kLeft * kPixelBytes, from,
                 static_cast<unsigned>(shape.in.w) * kPixelBytes, barrier);
      from += shape.in.w * kPixelBytes;
    }
  }
};

// The ends of image rows, which no copy writes.
REDLINE_DEVICE void clear(std::byte* from, int bytes) {
  for (int i = static_cast<int>(threadIdx.x) * 16; i < bytes; i += kStemBlock * 16)
    *reinterpret_cast<uint4*>(from + i) = uint4{};
  fence_async();
}

template <int kStages>
REDLINE_DEVICE void init_barriers(RingBarriers<kStages>& bars) {
  if (threadIdx.x != 0) return;
  bars.init();
  publish_barriers();
}

// Calls body(place) for each tile of this block.
template <typename Tile, typename Body>
REDLINE_DEVICE void for_places(const StemShape& shape, const Body& body) {
  for_tiles(tiles<Tile>(shape), [&](int tile) { body(Place<Tile>(shape, tile)); });
}

// The producer fills the ring with the input of this block's tiles, and by more(place, stage, barrier) with
// `more_bytes` each.
template <typename Tile, typename More>
REDLINE_DEVICE void produce(const StemShape& shape, const void* x, Ring ring, unsigned more_bytes,
                            const More& more) {
  if (threadIdx.x > kConsumers) return;
  for_places<Tile>(shape, [&](const Place<Tile>& place) {
    ring.fill(place.bytes(shape) + more_bytes, [&](int stage, std::uint64_t* full) {
      place.load(shape, x, ring.at(stage), full);
      more(place, stage, full);
    });
  });
}

// This thread's part of the weights as A of wgmma: two steps for each filter row.
template <typename T>
REDLINE_DEVICE void load_weights(const void* weights, Fragment<2 * kKernel>& held) {
  const int lane = threadIdx.x % 32, first = threadIdx.x % kGroup / 32 * 16 + lane / 4;
  const auto* pairs = static_cast<const std::uint32_t*>(weights);
#pragma unroll
  for (int step = 0; step < 2 * kKernel; ++step) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int filter = first + part % 2 * 8;
      const int column = step % 2 * 16 + part / 2 * 8 + lane % 4 * 2;  // of the filter row
      held.v[step][part] =
          column < 4 ? 0U : pairs[((filter * kKernel + step / 2) * kKernel * 4 + column - 4) / 2];
    }
  }
}

// A row of output pixels by 64 filters: their product with the image rows from `in` on, of which those
// outside the image are `zeros`.
template <typename T, typename Tile>
REDLINE_DEVICE void multiply_row(float (&d)[Tile::kWide / 2], const Fragment<2 * kKernel>& weights,
                                 const Place<Tile>& place, int row, const std::byte* in,
                                 const std::byte* zeros) {
  wgmma_fence();
#pragma unroll
  for (int r = 0; r < kKernel; ++r) {
    const std::byte* line = place.has(2 * row + r) ? in + r * Tile::kPitch : zeros;
    wgmma<T, false>(d, weights.v[2 * r], plain_descriptor(line, 16, 128), r > 0);
    wgmma<T, false>(d, weights.v[2 * r + 1], plain_descriptor(line + 32, 16, 128), true);
  }
  wgmma_commit();
  wgmma_wait<0>();
  settle(d);
}

// Rounds a row, of which `width` pixels are in the image, adds it up, and puts it pixel by pixel where it is
// stored from.
template <typename T, int kSums>
REDLINE_DEVICE void stage_row(std::byte* out, const float (&d)[kSums], int width, FilterSums& sums) {
  const int lane = lane_id(), warp = warp_id() % 4;
#pragma unroll
  for (int j = 0; j < kSums / 4; j += 2) {
    std::uint32_t packed[4];
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int block = j + part / 2, at = 4 * block + part % 2 * 2;
      const Pair<T> pair = Pair<T>::of(d[at], d[at + 1]);
      float2 stored = pair.floats();
      const int pixel = 8 * block + lane % 4 * 2;
      if (pixel >= width) stored.x = 0.0F;
      if (pixel + 1 >= width) stored.y = 0.0F;
      sums.add(part % 2, stored, stored);
      packed[part] = pair.bits();
    }
    // Lane 8m + i: pixel i of the block that matrix m belongs to.
    const int pixel = 8 * (j + lane / 16) + lane % 8, chunk = 2 * warp + lane / 8 % 2;
    stmatrix_transposed(out + swizzled(pixel, chunk), packed);
  }
}
#endif

template <typename T, typename Tile>
__global__ void __launch_bounds__(kStemBlock, 1)
    stem_forward_kernel(StemShape shape, const void* x, const void* weights, float* sums,
                        const __grid_constant__ CUtensorMap y, ReduceSpace space) {
#ifdef REDLINE_HOPPER
  extern __shared__ std::byte dynamic[];
  __shared__ RingBarriers<kForwardStages> bars;
  Ring ring(bars, aligned(dynamic), Tile::kInSpace, kForwardStages);
  const std::byte* zeros = ring.at(kForwardStages);
  std::byte* out_at = ring.at(kForwardStages) + Tile::kZeroSpace;
  init_barriers(bars);
  clear(ring.at(0), kForwardStages * Tile::kInSpace + Tile::kZeroSpace);
  begin_kernel();
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    return produce<Tile>(shape, x, ring, 0, [](const Place<Tile>&, int, std::uint64_t*) {});
  }
  const int group = warp_id() / 4;
  const bool leader = threadIdx.x % kGroup == 0;
  Fragment<2 * kKernel> held;
  load_weights<T>(weights, held);
  FilterSums own;
  int buffer = 0;
  for_places<Tile>(shape, [&](const Place<Tile>& place) {
    const int stage = ring.take();
    for (int row = group; row < Tile::kHigh; row += kGroups) {
      float d[Tile::kWide / 2];
      multiply_row<T>(d, held, place, row, ring.at(stage) + 2 * row * Tile::kPitch, zeros);
      if (row + kGroups >= Tile::kHigh) ring.release_async(stage);
      if (place.y + row >= shape.out_h()) continue;
      std::byte* out = out_at + (group * 2 + buffer) * Tile::kOutBytes;
      if (leader) wait_stores_read<1>();  // the one before last has left its buffer
      sync_group(2 + group, kGroup);
      stage_row<T>(out, d, shape.out_w(), own);
      fence_async();
      sync_group(2 + group, kGroup);
      if (leader) {
        store_box(y, 0, 0, place.y + row, place.image, out);
        commit_stores();
      }
      buffer ^= 1;
    }
  });
  if (leader) wait_stores();
  __shared__ float scratch[kGroups][2][kFilters];
  if (sums == nullptr) return;
  sum_filters<true>(own, nullptr, scratch, space, [&](int which, int filter, double total) {
    sums[which * kFilters + filter] = static_cast<float>(total);
  });
#endif
}

#ifdef REDLINE_HOPPER
// Adds a row of output pixels to the weights' gradient: dy of the row, transposed, times the image rows.
template <typename T, typename Tile>
REDLINE_DEVICE void add_row(float (&d)[kKernel][kRowDepth / 2], const std::byte* gradients,
                            const Place<Tile>& place, int row, const std::byte* in, const std::byte* zeros) {
  const int lane = lane_id(), chunk = warp_id() % 4 * 2 + lane / 8 % 2;
  Fragment<2> held;
#pragma unroll
  for (int step = 0; step < Tile::kWide / 16; ++step) {
    // Lane 8m + i: pixel i of the step's first or second eight.
    const int pixel = step * 16 + lane / 16 * 8 + lane % 8;
    if (step >= 2) wgmma_wait<1>();  // these registers are free again
    ldmatrix_transposed(held.v[step % 2], gradients + swizzled(pixel, chunk));
    wgmma_fence();
#pragma unroll
    for (int r = 0; r < kKernel; ++r) {
      const std::byte* line = place.has(2 * row + r) ? in + r * Tile::kPitch : zeros;
      wgmma<T, true>(d[r], held.v[step % 2], plain_descriptor(line + step * 256, 128, 16), true);
    }
    wgmma_commit();
  }
  wgmma_wait<0>();
}
#endif

template <typename T, typename Tile>
__global__ void __launch_bounds__(kStemBlock, 1)
    stem_gradient_kernel(StemShape shape, const void* x, const __grid_constant__ CUtensorMap dy,
                         ReduceSpace space) {
#ifdef REDLINE_HOPPER
  constexpr int kDyBytes = Tile::kOutBytes * Tile::kHigh;
  extern __shared__ std::byte dynamic[];
  __shared__ RingBarriers<kGradientStages> bars;
  std::byte* dy_at = aligned(dynamic);
  Ring ring(bars, dy_at + kGradientStages * kDyBytes, Tile::kInSpace, kGradientStages);
  const std::byte* zeros = ring.at(kGradientStages);
  init_barriers(bars);
  clear(ring.at(0), kGradientStages * Tile::kInSpace + Tile::kZeroSpace);
  begin_kernel();
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    return produce<Tile>(shape, x, ring, kDyBytes,
                         [&](const Place<Tile>& place, int stage, std::uint64_t* full) {
                           load_box(dy_at + stage * kDyBytes, dy, 0, 0, place.y, place.image, full);
                         });
  }
  const int group = warp_id() / 4, lane = lane_id();
  float d[kKernel][kRowDepth / 2] = {};
  for_places<Tile>(shape, [&](const Place<Tile>& place) {
    const int stage = ring.take();
    for (int row = group; row < Tile::kHigh; row += kGroups) {
      add_row<T>(d, dy_at + stage * kDyBytes + row * Tile::kOutBytes, place, row,
                 ring.at(stage) + 2 * row * Tile::kPitch, zeros);
    }
    ring.release(stage);  // of dy
  });
  // The second group's sums go to the first by shared memory, which the ring no longer needs.
  auto* const other = reinterpret_cast<float*>(dy_at);
  const auto each = [&](const auto& body) {
#pragma unroll
    for (int i = 0; i < kDepth / 2; ++i) {
      const int r = i / (kRowDepth / 2), j = i % (kRowDepth / 2);
      const int filter = warp_id() % 4 * 16 + lane / 4 + j % 4 / 2 * 8;
      body(d[r][j], filter * kDepth + r * kRowDepth + j / 4 * 8 + lane % 4 * 2 + j % 2);
    }
  };
  sync_consumers();
  if (group == 1) each([&](float value, int at) { other[at] = value; });
  sync_consumers();
  if (group != 0) return;
  float* to = space.partials + std::int64_t{blockIdx.y} * kFilters * kDepth;
  each([&](float value, int at) { to[at] = value + other[at]; });
#endif
}

// Sums are in filter rows of eight pixels, of which the first does not belong to the filter.
struct StemWeights {
  static_assert(kTotals == kRowDepth);
  static constexpr int kEach = kFilters * kDepth, kSkipped = 4;
  static constexpr bool kEarly = false;
  static REDLINE_DEVICE int at(int first, int thread) {
    return first / kRowDepth * kKernel * 4 + thread - kSkipped;
  }
};

constexpr int kNarrow = 64, kWidest = 112;

// What body.template operator()<T, width>() gives, with the type and the width of tiles.
template <typename Body>
TileLaunch with_width(const StemShape& shape, const Body& body) {
  return dispatch_narrow(shape.type, [&]<typename T>() {
    return shape.out_w() <= kNarrow ? body.template operator()<T, kNarrow>()
                                    : body.template operator()<T, kWidest>();
  });
}

CUtensorMap describe_outputs(const StemShape& shape, const void* y, int wide, int high) {
  return describe_images(y, shape.type, {shape.in.images, shape.out_h(), shape.out_w(), kFilters}, wide,
                         high);
}

}  // namespace

bool StemShape::possible() const {
  return has_hopper_kernels() && type != Type::f32 && filters == kFilters && kernel == kKernel &&
         stride == 2 && pad == kPad && in.h % 2 == 0 && in.w % 2 == 0 && in.h > 0 && in.w > 0 &&
         out_w() <= kWidest && in.images > 0;
}

TileLaunch stem_forward(const StemShape& shape, const cudaDeviceProp& device, const void* x,
                        const void* weights, void* y, float* sums) {
  return with_width(shape, [&]<typename T, int kWidth>() {
    using Tile = TileOf<kWidth, kForwardHeight>;
    const int blocks = std::min(device.multiProcessorCount, tiles<Tile>(shape));
    return make_launch(stem_forward_kernel<T, Tile>,
                       {.blocks = blocks,
                        .threads = kStemBlock,
                        .shared_bytes = hopper::kAlignment + kForwardStages * Tile::kInSpace +
                                        Tile::kZeroSpace + 2 * kGroups * Tile::kOutBytes,
                        .partials = static_cast<std::size_t>(blocks) * 2 * kFilters},
                       device, shape, x, weights, sums, describe_outputs(shape, y, Tile::kWide, 1));
  });
}

TileLaunch stem_weight_gradient(const StemShape& shape, const cudaDeviceProp& device, const void* x,
                                const void* dy, void* dw, Type dw_type) {
  return with_width(shape, [&]<typename T, int kWidth>() {
    using Tile = TileOf<kWidth, kGradientHeight>;
    // compute-sanitizer takes the overlapping groups for a contiguous matrix of 1 KiB, which would end beyond
    // the allocation.
    constexpr std::size_t kForSanitizer = 1024;
    const int blocks = std::min(device.multiProcessorCount, tiles<Tile>(shape));
    const TileGrid grid{.blocks = blocks,
                        .threads = kStemBlock,
                        .shared_bytes = hopper::kAlignment + Tile::kZeroSpace + kForSanitizer +
                                        kGradientStages * (Tile::kInSpace + Tile::kOutBytes * Tile::kHigh),
                        .partials = static_cast<std::size_t>(blocks) * kFilters * kDepth};
    const TileLaunch gradient = make_launch(stem_gradient_kernel<T, Tile>, grid, device, shape, x,
                                            describe_outputs(shape, dy, Tile::kWide, Tile::kHigh));
    return with_total<StemWeights>(gradient, grid, 0, dw, dw_type);
  });
}

}  // namespace redline::backend::cuda
