#include "backend/cuda/kernels/gemm.h"

#include <algorithm>

#include "backend/cuda/kernels/tiles.cuh"

namespace redline::backend::cuda {
namespace {

// A block processes 128 rows at a time, and the 256 channels in K blocks of 64, with tiles from three rings.
// Its warps compute dy from g and y, multiply it from registers by the weights for their rows of dx, and
// write it over g. From there, one of the two groups multiplies all 128 rows by the convolution's input, for
// 64 columns of dw, transposed: each group has the columns of two K blocks, in registers until all rows are
// done. dx is stored from x's place.
constexpr int kFrom = ExpandGrad::kFrom, kTo = ExpandGrad::kTo;
constexpr int kGStages = 5, kYStages = 4, kXStages = 2;
constexpr int kWeightBytes = kTo * kFrom * 2;
constexpr std::size_t kSharedBytes = hopper::kAlignment + kWeightBytes +
                                     std::size_t{kGStages + kYStages + kXStages} * hopper::kTileBytes +
                                     kTo * sizeof(float) * 3;

struct Maps {
  CUtensorMap g, y, x, weights, dx;
};

#ifdef REDLINE_HOPPER
using namespace hopper;

constexpr int kBlocks = kTo / kWidth;                  // K blocks
constexpr int kGroups = 2, kEach = kBlocks / kGroups;  // K blocks whose dw a group has
constexpr int kBlockBytes = kWidth * kFrom * 2;        // of the weights of a K block

struct Barriers {
  std::uint64_t weights;
  RingBarriers<kGStages> g;
  RingBarriers<kYStages> y;
  RingBarriers<kXStages> x;
};

// Where the parts of shared memory lie, and a thread's place in each ring.
struct Memory {
  std::byte* weights;
  Ring g, y, x;
  MixTable<2> table;

  REDLINE_DEVICE Memory(std::byte* dynamic, Barriers& bars)
      : weights(aligned(dynamic)),
        g(bars.g, weights + kWeightBytes, kTileBytes, kGStages),
        y(bars.y, g.at(kGStages), kTileBytes, kYStages),
        x(bars.x, y.at(kYStages), kTileBytes, kXStages),
        table(x.at(kXStages), kTo) {}
};

__device__ void produce(const ExpandGrad& work, const Maps& maps, Memory memory,
                        std::uint64_t* weights_full) {
  barrier_expect(weights_full, kWeightBytes);
  for (int i = 0; i < kBlocks; ++i)
    load_tile(memory.weights + i * kBlockBytes, maps.weights, 0, i * kWidth, weights_full);
  for_tiles(row_tiles(work.rows), [&](int tile) {
    memory.x.fill_tile(maps.x, 0, tile * kRows);
    for (int channel = 0; channel < kTo; channel += kWidth) {
      memory.y.fill_tile(maps.y, channel, tile * kRows);
      memory.g.fill_tile(maps.g, channel, tile * kRows);
    }
  });
}

// The work of a consumer of group kMe.
template <typename T, bool kBefore, int kMe>
class Consumer {
 public:
  REDLINE_DEVICE Consumer(const ExpandGrad& work, const Maps& maps, const Memory& memory)
      : work_(work), maps_(maps), memory_(memory) {
    const int channel = warp_id() % 4 * 16 + lane_id() / 4;  // and the one eight further
    for (int i = 0; i < (kBefore ? 2 : 0); ++i) {
      scale_[i] = work.before.gate.affine[channel + 8 * i];
      bias_[i] = work.before.gate.affine[kFrom + channel + 8 * i];
    }
  }

  REDLINE_DEVICE void run(std::uint64_t* weights_full, ReduceSpace space) {
    barrier_wait(weights_full, 0);
    for_tiles(row_tiles(work_.rows), [&](int tile) {
      row_ = tile * kRows;
      float dx[kFrom / 2];
      const int x_at = memory_.x.take();
      multiply_tile(memory_.x.at(x_at), dx);
      finish_tile(dx, x_at);
    });
    if (lane_id() == 0) wait_stores();
    write_dw(space.partials + std::int64_t{2 * kFrom} * gridDim.y);  // behind those of the sums
    if constexpr (kBefore) {
      sum_columns(
          sums_, work_.before.saved, reinterpret_cast<float*>(memory_.weights), space,
          [&](int which, int c, double total) { put_gradient(work_.before, kFrom, which, c, total); });
    }
  }

 private:
  static constexpr bool has(int block) { return block / kEach == kMe; }  // dw of a K block

  // What the convolution read, transposed: of sixteen channels and the tile's rows. Rows beyond the last are
  // zeros.
  REDLINE_DEVICE Fragment<kRows / 16> load_input(const std::byte* tile) const {
    const int lane = lane_id(), rows = static_cast<int>(min(work_.rows - row_, std::int64_t{kRows}));
    const int at = swizzled(lane / 16 * 8 + lane % 8, warp_id() % 4 * 2 + lane / 8 % 2);
    Fragment<kRows / 16> input;
#pragma unroll
    for (int step = 0; step < kRows / 16; ++step)
      ldmatrix_transposed(input.v[step], tile + step * kWarpTileBytes + at);
#pragma unroll
    for (int i = 0; i < (kBefore ? kRows / 16 * 4 : 0); ++i) {
      const int part = i % 4, row = i / 4 * 16 + part / 2 * 8 + lane % 4 * 2;
      const float2 y = Pair<T>::of_bits(input.v[i / 4][part]).floats();
      const float first = row < rows ? fmaf(y.x, scale_[part % 2], bias_[part % 2]) : 0.0F;
      const float second = row + 1 < rows ? fmaf(y.y, scale_[part % 2], bias_[part % 2]) : 0.0F;
      input.v[i / 4][part] = Pair<T>::relu_of(first, second).bits();
    }
    return input;
  }

  // The K loop. At every wait it is known which products are in flight: that of dx for a K block and after
  // it, if the group has the block, that of dw.
  REDLINE_DEVICE void multiply_tile(const std::byte* x, float (&dx)[kFrom / 2]) {
    const Fragment<kRows / 16> input = load_input(x);
    Fragment<> dy;
    int g_held = -1;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      if (block > 0) has(block - 1) ? wgmma_wait<1>() : wgmma_wait<0>();  // that of dx: dy is free again
      const int y_at = memory_.y.take(), g_at = memory_.g.take();
      std::byte* g = memory_.g.at(g_at);
      Fragment<> y;
      load(dy, g);
      load(y, memory_.y.at(y_at));
      memory_.y.release(y_at);
      mix<T, false>(dy, y, g, memory_.table, block * kWidth);
      wgmma_fence();
      multiply_block<T, true>(dx, dy, memory_.weights + block * kBlockBytes, block > 0);
      wgmma_commit();
      fence_async();
      sync_consumers();
      if (block == 0) release_stored();
      if (block > 0) {
        if (has(block - 1)) wgmma_wait<1>();
        memory_.g.release_async(g_held);
      }
      if (has(block)) {
        wgmma_fence();
        multiply_block<T, true>(dw_[block % kEach], input, g, true);
        wgmma_commit();
      }
      g_held = g_at;
    }
    has(kBlocks - 1) ? wgmma_wait<1>() : wgmma_wait<0>();
    settle(dx);
    g_held_ = g_held;
  }

  // Gates this warp's rows of dx if there is a norm before, and stores them from x's place.
  REDLINE_DEVICE void finish_tile(const float (&dx)[kFrom / 2], int x_at) {
    const int row = row_ + warp_id() * kWarpRows;
    std::byte* x = memory_.x.at(x_at) + warp_id() * kWarpTileBytes;
    if constexpr (kBefore) {
      const int rows = static_cast<int>(min(work_.rows - row, std::int64_t{kWarpRows}));
      gate_rows<T>(dx, x, sums_[0], AffineGate(work_.before.gate.affine, kFrom, 0, rows),
                   [](int /*row*/) { return Pair<T>{}; });
    } else {
      stage_rows<T>(x, dx);
    }
    store_rows(maps_.dx, 0, row, x);
    x_stored_ = x_at;
    if (has(kBlocks - 1)) wgmma_wait<0>();
    memory_.g.release_async(g_held_);
  }
  REDLINE_DEVICE void release_stored() {
    if (x_stored_ < 0) return;
    if (lane_id() == 0) wait_stores_read<0>();
    memory_.x.release_async(x_stored_);
  }

  REDLINE_DEVICE void write_dw(float* partials) {
    float* to = partials + std::int64_t{blockIdx.y} * kTo * kFrom;
    const int channel = warp_id() % 4 * 16 + lane_id() / 4;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      settle(dw_[i]);
#pragma unroll
      for (int j = 0; j < kWidth / 4; ++j) {
        const int column = (kMe * kEach + i) * kWidth + j / 2 * 8 + lane_id() % 4 * 2;
        *reinterpret_cast<float2*>(to + (channel + j % 2 * 8) * kTo + column) = {dw_[i][2 * j],
                                                                                 dw_[i][2 * j + 1]};
      }
    }
  }

  const ExpandGrad& work_;
  const Maps& maps_;
  Memory memory_;
  float scale_[2], bias_[2];  // of the two channels of x that this thread's rows of dw are for
  float dw_[kEach][kWidth / 2] = {};
  ColumnSums sums_[1];
  int row_ = 0;        // of the tile at hand
  int g_held_ = -1;    // the stage of g that the product of dw reads
  int x_stored_ = -1;  // the stage of x that the last tile of dx leaves from
};

#endif

template <typename T, bool kBefore>
__global__ void __launch_bounds__(hopper::kBlock, 1)
    expand_grad_kernel(const __grid_constant__ ExpandGrad work, const __grid_constant__ Maps maps,
                       ReduceSpace space) {
#ifdef REDLINE_HOPPER
  extern __shared__ std::byte dynamic[];
  __shared__ Barriers bars;
  Memory memory(dynamic, bars);
  if (threadIdx.x == 0) {
    barrier_init(&bars.weights, 1);
    bars.g.init();
    bars.y.init();
    bars.x.init();
    publish_barriers();
  }
  begin_kernel();
  memory.table.fill([&](int channel) -> Mix {
    const Slope slope(work.norm, channel, kTo, static_cast<float>(work.rows));
    return {slope.a, slope.b, slope.c};
  });
  __syncthreads();
  split_roles<1>([&] { produce(work, maps, memory, &bars.weights); },
                 [&] {
                   threadIdx.x < kGroup
                       ? Consumer<T, kBefore, 0>(work, maps, memory).run(&bars.weights, space)
                       : Consumer<T, kBefore, 1>(work, maps, memory).run(&bars.weights, space);
                 });
#endif
}

// The blocks' sums are transposed.
struct ExpandWeights {
  static constexpr int kEach = kTo * kFrom, kSkipped = 0;
  static constexpr bool kEarly = false;
  static REDLINE_DEVICE int at(int first, int thread) {
    const int from = first / kTo, to = first % kTo + thread;
    return to * kFrom + from;
  }
};

}  // namespace

TileLaunch expand_grad(const ExpandGrad& work, const cudaDeviceProp& device) {
  using hopper::kRows;
  const auto map = [&](const void* data, int channels, int box_rows) {
    return describe_rows(data, work.type, work.rows, channels, box_rows);
  };
  const bool before = work.before.y != nullptr;
  const Maps maps{map(work.norm.g, kTo, kRows), map(work.norm.y, kTo, kRows),
                  map(before ? work.before.y : work.x, kFrom, kRows),
                  describe_rows(work.weights, work.type, kTo, kFrom, hopper::kWidth),
                  map(work.dx, kFrom, hopper::kWarpRows)};
  const int blocks = std::min(device.multiProcessorCount, hopper::row_tiles(work.rows));
  const TileGrid grid{.blocks = blocks,
                      .threads = hopper::kBlock,
                      .shared_bytes = kSharedBytes,
                      .partials = static_cast<std::size_t>(blocks) * (kTo * kFrom + 2 * kFrom)};
  const auto kernel = dispatch_narrow(work.type, [&]<typename T>() {
    return before ? expand_grad_kernel<T, true> : expand_grad_kernel<T, false>;
  });
  return with_total<ExpandWeights>(make_launch(kernel, grid, device, work, maps), grid,
                                   static_cast<std::size_t>(blocks) * 2 * kFrom, work.dw, work.dw_type);
}

}  // namespace redline::backend::cuda
