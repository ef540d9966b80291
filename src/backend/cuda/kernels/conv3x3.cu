#include "backend/cuda/kernels/conv3x3.h"

#include "backend/cuda/kernels/conv3x3.cuh"
#include "backend/cuda/kernels/norm.cuh"

// A tile is some rows of an image. TMA loads it, with the rows around it, into shared memory, 64 channels at
// a time: a position of 128 swizzled bytes for every pixel, and one of zeros after every row, which is the
// padding of the two rows that it separates. A tap of the filter then reads the same tile a few positions
// further on: it moves the start of wgmma's descriptor.
//
// The product is transposed: filters are its rows (64 per warp group), positions its columns. The results for
// positions between rows are dropped. With 64 channels, all weights stay in shared memory, and each of the
// two warp groups has its own tiles. With more, each group has 64 filters of the same tile, and weights come
// through a ring. In both cases the groups alternate: one stores while the other multiplies. A third group
// serves them: one thread loads tiles and weights by TMA, and three warps apply a norm and ReLU to a tile in
// place, once for all nine taps, while the tile before it is multiplied.
namespace redline::backend::cuda {
namespace {

using namespace conv3x3;
using hopper::kBlock;  // threads
using hopper::kConsumers;

struct Conv3x3Maps {
  CUtensorMap x, weights, out;
  CUtensorMap y;          // of gradients
  CUtensorMap activated;  // of the forward convolution
};

// The registers of a block at launch, in steps of eight per thread. Groups that request more would hang.
constexpr int kBlockRegisters = 65536 / kBlock / 8 * 8 * kBlock;

#ifdef REDLINE_HOPPER

using hopper::Cursor;
using hopper::Pair;

// The data that all parts of a block work on.
struct Block {
  const Conv3x3& work;
  const Cut& cut;
  int x_stages;
  std::byte *weights, *out, *x;  // in shared memory

  __device__ Block(const Conv3x3& of_work, const Cut& of_cut, int stages, std::byte* dynamic)
      : work(of_work), cut(of_cut), x_stages(stages) {
    weights = hopper::aligned(dynamic);
    out = weights + kTaps * kWeightBytes;
    x = out + kGroups * cut.out_bytes();
  }
  // The first position of a stage; the one before it is zeros.
  REDLINE_DEVICE std::byte* stage(int index) const { return x + index * cut.slice_bytes() + 1024; }
  // The memory from which a group stores its product.
  REDLINE_DEVICE std::byte* out_of(int group) const { return out + group * cut.out_bytes(); }
  REDLINE_DEVICE int first_tile() const { return static_cast<int>(blockIdx.y); }
  REDLINE_DEVICE int stride() const { return static_cast<int>(gridDim.y); }
  REDLINE_DEVICE int slices() const { return work.from.channels / kSlice; }
  // The first filter of this block, or of a group that has its own filters.
  REDLINE_DEVICE int first_filter(int group = 0) const {
    return (static_cast<int>(blockIdx.x) * kGroups + group) * kSlice;
  }
  // Whether this block stores what it activated.
  REDLINE_DEVICE bool keeps() const { return work.activated != nullptr && blockIdx.x == 0; }
};

struct Barriers {
  hopper::RingBarriers<kMostStages> x;
  std::uint64_t x_ready[kMostStages];  // activated
  hopper::RingBarriers<kTaps> weights;
  hopper::RingBarriers<kGroups> y;
};

// --- Loading and activating ---

// The thread that loads everything by TMA, each part as soon as there is room for it.
template <bool kGradient, bool kResident>
struct Loader {
  const Block& block;
  const Conv3x3Maps& maps;
  Barriers& bars;
  int tile = block.first_tile(), slice = 0;  // of x, to be loaded next
  Cursor at;
  unsigned weight_turn = 0;

  REDLINE_DEVICE void load_x() {
    using namespace hopper;
    if (tile >= block.cut.tiles()) return;
    const Tile place(block.cut, tile);
    bars.x.begin_fill(at.stage, at.parity, static_cast<unsigned>(block.cut.halo_positions() * kPosition));
    load_box(block.stage(at.stage), maps.x, slice * kSlice, 0, place.top - 1, place.image,
             &bars.x.full[at.stage]);
    at.next(block.x_stages);
    if (++slice == block.slices()) {
      slice = 0;
      tile += block.stride();
    }
    // No stage may be free for a while, so the next slice is prefetched into L2.
    if (tile >= block.cut.tiles()) return;
    const Tile next(block.cut, tile);
    prefetch_box(maps.x, slice * kSlice, 0, next.top - 1, next.image);
    if (kGradient && slice == 0) {
      for (int filter = 0; filter < (kResident ? 1 : kGroups) * kSlice; filter += kSlice)
        prefetch_box(maps.y, block.first_filter() + filter, 0, next.top, next.image);
    }
  }
  // Loads the weights of 64 filters for a slice of the channels, tap by tap.
  REDLINE_DEVICE void load_weights(int of_slice, int filter) {
    using namespace hopper;
    const int inner = kGradient ? block.work.to : block.work.from.channels;  // of the tensor of weights
    for (int tap = 0; tap < kTaps; ++tap) {
      bars.weights.begin_fill(tap, weight_turn & 1U, kWeightBytes);
      const int column = tap * inner + (kGradient ? filter : of_slice * kSlice);
      load_tile(block.weights + tap * kWeightBytes, maps.weights, column,
                kGradient ? of_slice * kSlice : filter, &bars.weights.full[tap]);
    }
    ++weight_turn;
  }
  // Loads the y that gates a group's part of a tile to the memory of the group's product.
  REDLINE_DEVICE void load_y(int of_tile, int group, unsigned turn) {
    using namespace hopper;
    const Tile place(block.cut, of_tile);
    bars.y.begin_fill(group, turn & 1U, static_cast<unsigned>(block.cut.positions() * kPosition));
    load_box(block.out_of(group), maps.y, block.first_filter(kResident ? 0 : group), 0, place.top,
             place.image, &bars.y.full[group]);
  }

  __device__ void run() {
    const int tiles = block.cut.tiles();
    unsigned turn = 0;
    if constexpr (kResident) {
      load_weights(0, block.first_filter());
      for (int i = block.first_tile(); i < tiles; i += block.stride(), ++turn) {
        load_x();
        if constexpr (kGradient) load_y(i, static_cast<int>(turn % kGroups), turn / kGroups);
      }
    } else {
      for (int i = 0; i < block.x_stages - 1; ++i) load_x();
      for (int i = block.first_tile(); i < tiles; i += block.stride(), ++turn) {
        for (int s = 0; s < block.slices(); ++s) {
          load_weights(s, block.first_filter());
          load_x();  // the slice before this one has made room
          if (kGradient && s == block.slices() - 1) {
            for (int group = 0; group < kGroups; ++group) load_y(i, group, turn);
          }
          load_weights(s, block.first_filter(1));
        }
      }
    }
  }
};

// The warps that apply the norm and ReLU to what TMA loaded, in place, and store it for later ops.
template <typename T>
__device__ void activate(const Block& block, const CUtensorMap& activated, Barriers& bars,
                         NormTable<Conv3x3::kMost>& norms) {
  using namespace hopper;
  const Activator<T, Conv3x3::kMost> activator(block.cut, norms);
  // The norm, computed from its sums.
  activator.fill(norms, block.work.from.channels, [&](int c) -> float2 {
    const ChannelNorm norm = norm_of(block.work.norm, c);
    if (blockIdx.x == 0 && blockIdx.y == 0) keep(block.work.norm, c, norm);
    return {norm.scale, norm.bias};
  });
  const bool keeps = block.keeps() && activator.thread == 0;
  int kept = -1;  // the stage that is being stored
  Cursor at;
  for (int i = block.first_tile(); i < block.cut.tiles(); i += block.stride()) {
    const Tile tile(block.cut, i);
    for (int slice = 0; slice < block.slices(); ++slice, at.next(block.x_stages)) {
      if (kept >= 0) {
        wait_stores_read<0>();
        barrier_arrive(&bars.x.empty[kept]);
      }
      barrier_wait(&bars.x.full[at.stage], at.parity);
      activator.activate(tile, slice, block.stage(at.stage));
      activator.arrive(&bars.x_ready[at.stage]);
      if (!keeps) continue;
      barrier_wait(&bars.x_ready[at.stage], at.parity);
      store_box(activated, slice * kSlice, 0, tile.top, tile.image,
                block.stage(at.stage) + block.cut.pitch() * kPosition);
      commit_stores();
      kept = at.stage;
    }
  }
  if (keeps) wait_stores();
}

// --- Multiplying ---

// The groups multiply in turns, so that one stores while the other multiplies.
REDLINE_DEVICE void wait_turn(int group) { hopper::sync_group(4 + group, kConsumers); }
REDLINE_DEVICE void give_turn(int group) { hopper::arrive_group(4 + group, kConsumers); }

// The work of one warp group: it multiplies, and stores its product.
template <typename T, bool kGradient, bool kResident, int kTile>
struct Consumer {
  static constexpr bool kActivates = !kGradient;
  const Block& block;
  const Conv3x3Maps& maps;
  Barriers& bars;
  int group = static_cast<int>(threadIdx.x) / kGroup;
  int thread = static_cast<int>(threadIdx.x) % kGroup;
  int lane = thread % 32, warp = thread / 32;
  int channel = block.first_filter(kResident ? 0 : group);  // the group's first
  hopper::FilterSums sums = {};                             // with y, or squares

  // --- The product ---

  // One tap of one slice.
  REDLINE_DEVICE void multiply_tap(float (&d)[kTile / 2], const std::byte* weights, const std::byte* x,
                                   int tap, bool add) const {
    using namespace hopper;
    const int down = tap / 3 - 1, right = tap % 3 - 1;
    const int shift = (kGradient ? -1 : 1) * (down * block.cut.pitch() + right);
    const std::byte* from = x + (block.cut.pitch() + shift) * kPosition;
#pragma unroll
    for (int step = 0; step < kSlice / 16; ++step) {
      const std::uint64_t a = kGradient ? descriptor(weights + step * 2048, kWeightBytes, 1024)
                                        : descriptor(weights + step * 32, 16, 1024);
      wgmma<T, kGradient, false>(d, a, descriptor(from + step * 32, 16, 1024), add || step > 0);
    }
  }

  // All taps of a slice, in this group's turn.
  REDLINE_DEVICE void multiply_slice(float (&d)[kTile / 2], int slice, const Cursor& at) const {
    using namespace hopper;
    wait_turn(group);
    barrier_wait(&(kActivates ? bars.x_ready : bars.x.full)[at.stage], at.parity);
    const std::byte* x = block.stage(at.stage);
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      if constexpr (!kResident) barrier_wait(&bars.weights.full[tap], static_cast<unsigned>(group));
      if (!kResident || tap == 0) wgmma_fence();
      multiply_tap(d, block.weights + tap * kWeightBytes, x, tap, slice + tap > 0);
      if (!kResident || tap == kTaps - 1) wgmma_commit();
      if (!kResident && tap > 0) {
        wgmma_wait<1>();
        if (thread == 0) barrier_arrive(&bars.weights.empty[tap - 1]);
      }
    }
    give_turn(1 - group);
    wgmma_wait<0>();
    if (thread == 0) {
      if constexpr (!kResident) barrier_arrive(&bars.weights.empty[kTaps - 1]);
      barrier_arrive(&bars.x.empty[at.stage]);
    }
  }

  // --- Storing ---

  // Of the tile's columns 8j + 2 * (lane % 4) + odd, those that are pixels of a row: bit j.
  REDLINE_DEVICE unsigned pixels(int odd) const {
    unsigned bits = 0;
    for (int j = 0; j < kTile / 8; ++j) {
      if ((8 * j + 2 * (lane % 4) + odd) % block.cut.pitch() != block.cut.w) bits |= 1U << j;
    }
    return bits;
  }
  unsigned pixels_of_rows[2] = {pixels(0), pixels(1)};
  // Those of them that are in the image.
  REDLINE_DEVICE unsigned pixels(const Tile& tile, int odd) const {
    const int end = min(block.cut.rows, block.cut.h - tile.top) * block.cut.pitch();
    const int count = max(0, end - 2 * (lane % 4) - odd + 7) / 8;
    return pixels_of_rows[odd] & (count < 32 ? (1U << count) - 1U : ~0U);
  }

  // The gate of relu(affine(y)) in the thread's two rows.
  struct Gate {
    float scale[2], bias[2];
  };
  REDLINE_DEVICE Gate gate() const {
    Gate found{};
    if constexpr (kGradient) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int c = channel + warp * 16 + lane / 4 + 8 * half;
        found.scale[half] = block.work.before.gate.affine[c];
        found.bias[half] = block.work.before.gate.affine[block.work.to + c];
      }
    }
    return found;
  }

  // Two neighbouring columns of one row: gated if it is a gradient, rounded, and added to the sums.
  REDLINE_DEVICE std::uint32_t finish_pair(float2 value, std::uint32_t y_bits, const Gate& gate, int half,
                                           bool first, bool second) {
    float2 y{};
    if constexpr (kGradient) {
      y = Pair<T>::of_bits(y_bits).floats();
      first = first && !(fmaf(y.x, gate.scale[half], gate.bias[half]) <= 0.0F);
      second = second && !(fmaf(y.y, gate.scale[half], gate.bias[half]) <= 0.0F);
    }
    const Pair<T> rounded = Pair<T>::of(first ? value.x : 0.0F, second ? value.y : 0.0F);
    const float2 stored = rounded.floats();
    sums.add(half, stored, kGradient ? y : stored);
    return rounded.bits();
  }

  // Stores a tile's product. The y that gates it is in the memory where the product is put in order.
  REDLINE_DEVICE void finish(const Tile& tile, const float (&d)[kTile / 2], const Gate& gate, unsigned turn) {
    using namespace hopper;
    const unsigned even = pixels(tile, 0), odd = pixels(tile, 1);
    if constexpr (kGradient) barrier_wait(&bars.y.full[group], turn & 1U);
    std::byte* at = block.out_of(group) + swizzled(lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2);
#pragma unroll
    for (int j = 0; j < kTile / 8; j += 2) {
      std::uint32_t bits[4] = {};
      if constexpr (kGradient) ldmatrix_transposed(bits, at + j * 1024);
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int column = j + part / 2, half = part % 2;
        if (column == kTile / 8) break;
        const int from = 4 * column + 2 * half;
        bits[part] = finish_pair({d[from], d[from + 1]}, bits[part], gate, half, (even >> column & 1U) != 0U,
                                 (odd >> column & 1U) != 0U);
      }
      stmatrix_transposed(at + j * 1024, bits);
    }
    fence_async();
    sync_group(2 + group, kGroup);
    if (thread != 0) return;
    store_box(maps.out, channel, 0, tile.top, tile.image, block.out_of(group));
    commit_stores();
    wait_stores_read<0>();
    if constexpr (kGradient) barrier_arrive(&bars.y.empty[group]);
  }

  __device__ void run() {
    if (group == 1) give_turn(0);
    if constexpr (kResident) {
      for (auto& full : bars.weights.full) hopper::barrier_wait(&full, 0);
    }
    const Gate by = gate();
    const int step = kResident ? kGroups : 1, stride = block.stride();
    Cursor at;
    if (kResident && group == 1) at.next(block.x_stages);
    unsigned turn = 0;
    for (int i = block.first_tile() + (kResident ? group * stride : 0); i < block.cut.tiles();
         i += step * stride, ++turn) {
      float d[kTile / 2];
      for (int slice = 0; slice < (kResident ? 1 : block.slices()); ++slice) {
        multiply_slice(d, slice, at);
        for (int k = 0; k < step; ++k) at.next(block.x_stages);
      }
      hopper::settle(d);
      finish(Tile(block.cut, i), d, by, turn);
    }
    if (thread == 0) hopper::wait_stores();
  }

  // Adds up the sums of all threads and blocks.
  __device__ void finish_sums(ReduceSpace space) const {
    const Conv3x3& work = block.work;
    hopper::sync_consumers();  // all stores from there are done
    hopper::sum_filters<kResident>(sums, kGradient ? work.before.saved + channel : nullptr,
                                   *reinterpret_cast<float(*)[kGroups][2][kSlice]>(block.out), space,
                                   [&](int which, int filter, double total) {
                                     if constexpr (kGradient)
                                       put_gradient(work.before, work.to, which, channel + filter, total);
                                     else
                                       work.sums[which * work.to + channel + filter] =
                                           static_cast<float>(total);
                                   });
  }
};

// By one thread.
template <bool kResident>
__device__ void init_barriers(Barriers& bars, const Block& block) {
  using namespace hopper;
  bars.x.init((kResident ? 1U : kGroups) + (block.keeps() ? 1U : 0U));
  for (std::uint64_t& ready : bars.x_ready) barrier_init(&ready, kActivators);
  bars.weights.init(1);
  bars.y.init(1);
  publish_barriers();
}

// Clears what is not loaded: the position before each stage, and the memory of products.
__device__ void clear_shared(const Block& block) {
  const int t = static_cast<int>(threadIdx.x);
  if (t < block.x_stages * kPieces)
    *reinterpret_cast<uint4*>(block.stage(t / kPieces) - kPosition + t % kPieces * 16) = uint4{};
  for (int i = t; i < kGroups * block.cut.out_bytes() / 16; i += kBlock)
    reinterpret_cast<uint4*>(block.out)[i] = uint4{};
  hopper::fence_async();
}

#endif

template <typename T, bool kGradient, bool kResident, int kTile>
__global__ void __launch_bounds__(kBlock, 1)
    conv3x3_kernel(const __grid_constant__ Conv3x3 work, const __grid_constant__ Cut cut,
                   const __grid_constant__ Conv3x3Maps maps, int x_stages, ReduceSpace space) {
#ifdef REDLINE_HOPPER
  using namespace hopper;
  extern __shared__ std::byte dynamic[];
  __shared__ Barriers bars;
  __shared__ NormTable<Conv3x3::kMost> norms;
  const Block block(work, cut, x_stages, dynamic);
  const int t = static_cast<int>(threadIdx.x);
  if (t == 0) init_barriers<kResident>(bars, block);
  clear_shared(block);
  __syncthreads();
  begin_kernel();
  // The serving group gives its registers to the others.
  constexpr int kFew = kGradient ? 40 : 56, kMany = kGradient ? 232 : 224;
  static_assert(kFew * kGroup + kMany * kConsumers <= kBlockRegisters);
  if (t >= kConsumers) {
    give_registers<kFew>();
    if (t == kConsumers) {
      Loader<kGradient, kResident>{block, maps, bars}.run();
    } else if (!kGradient && t >= kConsumers + 32) {
      activate<T>(block, maps.activated, bars, norms);
    }
    return;
  }
  take_registers<kMany>();
  Consumer<T, kGradient, kResident, kTile> consumer{block, maps, bars};
  consumer.run();
  consumer.finish_sums(space);
#endif
}

using Kernel = void (*)(Conv3x3, Cut, Conv3x3Maps, int, ReduceSpace);

template <typename T, bool kGradient, bool kResident>
Kernel kernel_of(int tile_size) {
  if (tile_size == 208) return conv3x3_kernel<T, kGradient, kResident, 208>;
  if (tile_size == 216) return conv3x3_kernel<T, kGradient, kResident, 216>;
  return conv3x3_kernel<T, kGradient, kResident, 232>;
}

}  // namespace

TileLaunch conv3x3_conv(const Conv3x3& work, const cudaDeviceProp& device, int tile_size) {
  const Cut cut(work.from, tile_size);
  const int stages = most_stages(cut);
  const int columns = std::max(1, work.to / (kGroups * kSlice));  // blocks that share a tile
  const int blocks = std::min(cut.tiles(), std::max(1, device.multiProcessorCount / columns));
  const int filters = work.gradient ? work.from.channels : work.to,
            read = work.gradient ? work.to : work.from.channels;
  const auto describe = [&](const void* data, int channels, int rows) {
    return describe_images(data, work.type, {cut.images, cut.h, cut.w, channels}, cut.pitch(), rows);
  };
  const Conv3x3Maps maps{.x = describe(work.x, work.from.channels, cut.rows + 2),
                         .weights = describe_rows(work.weights, work.type, filters, kTaps * read, kSlice),
                         .out = describe(work.out, work.to, cut.rows),
                         .y = describe(work.before.y, work.to, cut.rows),
                         .activated = describe(work.activated, work.from.channels, cut.rows)};
  const TileGrid grid{.columns = columns,
                      .blocks = blocks,
                      .threads = kBlock,
                      .shared_bytes = static_cast<std::size_t>(shared_bytes(cut, stages)),
                      .partials = static_cast<std::size_t>(blocks) * 2 * static_cast<std::size_t>(work.to)};
  const bool resident = is_resident(work.from.channels, work.to);
  const Kernel kernel = dispatch_narrow(work.type, [&]<typename T>() {
    if (work.gradient) return (resident ? kernel_of<T, true, true> : kernel_of<T, true, false>)(tile_size);
    return (resident ? kernel_of<T, false, true> : kernel_of<T, false, false>)(tile_size);
  });
  return make_launch(kernel, grid, device, work, cut, maps, stages);
}

}  // namespace redline::backend::cuda
