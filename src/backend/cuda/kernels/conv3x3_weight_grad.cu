#include "backend/cuda/kernels/conv3x3.h"

#include "backend/cuda/kernels/conv3x3.cuh"

// dw[to][tap][from] is the sum over positions of dy[position][to] * x[position + tap][from]: a product whose
// depth is the positions. Tiles are those of conv3x3.cu. wgmma can read both operands in place, with rows
// across the depth, and a tap again reads x a few positions further on. Three neighbouring taps are one
// product of 192 columns, in which the 64 columns of each tap begin one position after those of the tap
// before.
//
// A block sums all nine taps over its share of the tiles, in the registers of three warp groups, one for each
// row of the filter. A fourth group loads the tiles by TMA and applies the norm.
namespace redline::backend::cuda {
namespace {

using namespace conv3x3;

constexpr int kRowsOfTaps = 3;                                                                // warp groups
constexpr int kMultiplying = kRowsOfTaps * kGroup, kWeightGradBlock = kMultiplying + kGroup;  // threads

// The sums of a block are in the order of the weights.
struct Weights3x3 {
  static constexpr int kEach = kTaps * kSlice * kSlice, kSkipped = 0;
  static constexpr bool kEarly = true;
  static REDLINE_DEVICE int at(int first, int thread) { return first + thread; }
};

#ifdef REDLINE_HOPPER

using hopper::Cursor;

struct Barriers {
  std::uint64_t full[DeepCut::kMostStages], ready[DeepCut::kMostStages],
      empty[DeepCut::kMostStages];  // ready: activated
};

// A block's share of the work, and its shared memory.
struct Share {
  const Conv3x3WeightGrad& work;
  const DeepCut& cut;
  int stages;
  std::byte* memory;

  // x of a stage; the position before it is zeros.
  REDLINE_DEVICE std::byte* x(int stage) const { return memory + stage * cut.stage_bytes() + 1024; }
  REDLINE_DEVICE std::byte* dy(int stage) const {
    return memory + stage * cut.stage_bytes() + cut.slice_bytes();
  }
  // Calls body(tile, at) for each of the block's tiles.
  template <typename Body>
  REDLINE_DEVICE void for_tiles(const Body& body) const {
    Cursor at;
    for (int i = static_cast<int>(blockIdx.x); i < cut.tiles(); i += static_cast<int>(gridDim.x)) {
      body(Tile(cut, i), at);
      at.next(stages);
    }
  }
};

// By one thread.
__device__ void load(const Share& share, const CUtensorMap& x, const CUtensorMap& dy, Barriers& bars) {
  using namespace hopper;
  const auto bytes = static_cast<unsigned>((share.cut.halo_positions() + share.cut.positions()) * kPosition);
  share.for_tiles([&](const Tile& tile, const Cursor& at) {
    std::uint64_t* full = &bars.full[at.stage];
    barrier_wait(&bars.empty[at.stage], at.parity ^ 1U);
    barrier_expect(full, bytes);
    load_box(share.x(at.stage), x, 0, 0, tile.top - 1, tile.image, full);
    load_box(share.dy(at.stage), dy, 0, 0, tile.top, tile.image, full);
  });
}

template <typename T>
__device__ void activate(const Share& share, Barriers& bars, NormTable<kSlice>& norms) {
  const Activator<T, kSlice> activator(share.cut, norms);
  const float* affine = share.work.affine;
  activator.fill(norms, kSlice, [&](int c) -> float2 { return {affine[c], affine[kSlice + c]}; });
  share.for_tiles([&](const Tile& tile, const Cursor& at) {
    hopper::barrier_wait(&bars.full[at.stage], at.parity);
    activator.activate(tile, 0, share.x(at.stage));
    activator.arrive(&bars.ready[at.stage]);
  });
}

// The product for the row of taps of a warp group.
template <typename T>
__device__ void multiply(const Share& share, Barriers& bars, float* partials) {
  using namespace hopper;
  const int t = static_cast<int>(threadIdx.x), row = t / kGroup, lane = t % 32, warp = t % kGroup / 32;
  const int shift = (row * share.cut.pitch() - 1) * kPosition, depth = share.cut.depth();
  float d[96] = {};
  int held = -1;  // the stage before
  const auto release = [&] {
    if (held >= 0 && t % kGroup == 0) barrier_arrive(&bars.empty[held]);
  };
  share.for_tiles([&](const Tile& /*tile*/, const Cursor& at) {
    barrier_wait(&bars.ready[at.stage], at.parity);
    const std::byte *dy = share.dy(at.stage), *x = share.x(at.stage) + shift;
    wgmma_fence();
    for (int k = 0; k < depth; k += 16) {
      wgmma<T, true, true>(d, descriptor(dy + k * kPosition, 0, 1024),
                           descriptor(x + k * kPosition, kPosition, 1024), true);
    }
    wgmma_commit();
    wgmma_wait<1>();
    release();
    held = at.stage;
  });
  wgmma_wait<0>();
  settle(d);
  float* to = partials + std::int64_t{blockIdx.x} * Weights3x3::kEach;
#pragma unroll
  for (int j = 0; j < 24; ++j) {
    const int tap = row * 3 + j / 8, from = j % 8 * 8 + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int filter = warp * 16 + lane / 4 + half * 8;
      *reinterpret_cast<float2*>(to + (filter * kTaps + tap) * kSlice + from) = {d[4 * j + 2 * half],
                                                                                 d[4 * j + 2 * half + 1]};
    }
  }
}

#endif

template <typename T>
__global__ void __launch_bounds__(kWeightGradBlock, 1)
    weight_grad_kernel(const __grid_constant__ Conv3x3WeightGrad work, const __grid_constant__ DeepCut cut,
                       const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap dy,
                       int stages, ReduceSpace space) {
#ifdef REDLINE_HOPPER
  using namespace hopper;
  extern __shared__ std::byte dynamic[];
  __shared__ Barriers bars;
  __shared__ NormTable<kSlice> norms;
  const Share share{work, cut, stages, aligned(dynamic)};
  const int t = static_cast<int>(threadIdx.x);
  if (t == 0) {
    for (int i = 0; i < stages; ++i) {
      barrier_init(&bars.full[i], 1);
      barrier_init(&bars.ready[i], kActivators);
      barrier_init(&bars.empty[i], kRowsOfTaps);
    }
    publish_barriers();
  }
  // Cleared because it is read but not loaded: the position before a stage, and those after the last row.
  for (int i = t; i < stages * cut.stage_bytes() / 16; i += kWeightGradBlock)
    reinterpret_cast<uint4*>(share.memory)[i] = uint4{};
  fence_async();
  __syncthreads();
  begin_kernel();
  if (t < kMultiplying) {
    multiply<T>(share, bars, space.partials);
  } else if (t == kMultiplying) {
    load(share, x, dy, bars);
  } else if (t >= kMultiplying + 32) {
    activate<T>(share, bars, norms);
  }
#endif
}

}  // namespace

TileLaunch conv3x3_weight_grad(const Conv3x3WeightGrad& work, const cudaDeviceProp& device) {
  const DeepCut cut(work.images);
  const int stages = cut.stages(), blocks = std::min(cut.tiles(), device.multiProcessorCount);
  const TileGrid grid{.columns = blocks,
                      .threads = kWeightGradBlock,
                      .shared_bytes = static_cast<std::size_t>(cut.shared_bytes(stages)),
                      .partials = static_cast<std::size_t>(blocks) * Weights3x3::kEach};
  const auto kernel = dispatch_narrow(work.type, [&]<typename T>() { return weight_grad_kernel<T>; });
  const TileLaunch gradient =
      make_launch(kernel, grid, device, work, cut,
                  describe_images(work.x, work.type, work.images, cut.pitch(), cut.rows + 2),
                  describe_images(work.dy, work.type, work.images, cut.pitch(), cut.rows), stages);
  return with_total<Weights3x3>(gradient, grid, 0, work.dw, work.dw_type);
}

}  // namespace redline::backend::cuda
