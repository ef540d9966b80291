#include "backend/cuda/kernels/gemm.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/tiles.cuh"

namespace redline::backend::cuda {
namespace {

// A block processes 128 rows at a time. One ring has everything that is read, tile by tile in the order of
// use: for each K block a and a2, and b unless it is resident; then for each 64 columns of the product y,
// `other` and the shortcut's y. wgmma reads a prologue's result from registers, or a from the ring if there
// is no prologue. Results are stored from the tile of the ring that they have replaced, or from the staging
// memory.
static_assert(GemmForm::kTileBytes == hopper::kTileBytes);

struct GemmMaps {
  CUtensorMap a, a2, made, b, y, other, shortcut, out;
};

// A row of kGemmForms, and constants derived from it.
template <Prologue kOfPrologue, Epilogue kOfEpilogue, int kOfColumns, bool kOfResident, int kOfStaging>
struct Form {
  static constexpr Prologue kPrologue = kOfPrologue;
  static constexpr Epilogue kEpilogue = kOfEpilogue;
  static constexpr int kColumns = kOfColumns;
  static constexpr bool kResident = kOfResident, kForward = kEpilogue == Epilogue::sums;
  static constexpr bool kSparse = kEpilogue == Epilogue::joined_sparse;
  static constexpr bool kTwoNorms = kEpilogue == Epilogue::joined_two_norms;
  static constexpr bool kJoins = kEpilogue == Epilogue::joined || kSparse || kTwoNorms;
  static constexpr int kTensors = kPrologue == Prologue::join || kPrologue == Prologue::norm_grad ? 2 : 1;
  static constexpr int kPart = kColumns < 128 ? kColumns : 128;  // columns of one wgmma
  static constexpr int kParts = kColumns / kPart;
  static constexpr int kPartBytes = kPart * hopper::kWidth * 2;  // of a K block of b
  static constexpr int kTiles = kColumns / hopper::kWidth;
  static constexpr int kStaging = kOfStaging;
  static constexpr GemmForm form() { return {kPrologue, kEpilogue, kColumns, kResident, kStaging}; }
};

#ifdef REDLINE_HOPPER
using namespace hopper;

// Where the parts of shared memory lie.
struct Memory {
  std::byte *ring, *b, *staging, *table;
  __device__ Memory(std::byte* dynamic, const GemmForm& form, int k, int stages) {
    ring = aligned(dynamic);
    b = ring + stages * kTileBytes;
    staging = b + form.b_bytes(k);
    table = staging + form.staging * kTileBytes;
  }
};

struct Barriers {
  std::uint64_t b;
  RingBarriers<GemmForm::kMostStages> ring;
};

template <typename Is>
__device__ void produce(const Gemm& work, const GemmMaps& maps, Ring ring, std::byte* b,
                        std::uint64_t* b_full) {
  const int column = static_cast<int>(blockIdx.x) * Is::kColumns;
  const auto load_b = [&](std::byte* to, int k, int part, std::uint64_t* full) {
    const int first = column + part * Is::kPart;
    if constexpr (Is::kForward) {
      load_tile(to, maps.b, k, first, full);
    } else {
      for (int i = 0; i < Is::kPart; i += kWidth) load_tile(to + i * kWidth * 2, maps.b, first + i, k, full);
    }
  };
  if constexpr (Is::kResident) {
    barrier_expect(b_full, static_cast<unsigned>(work.k) * Is::kColumns * 2);
    for (int i = 0; i < work.k / kWidth * Is::kParts; ++i)
      load_b(b + i * Is::kPartBytes, i / Is::kParts * kWidth, i % Is::kParts, b_full);
  }
  for_tiles(row_tiles(work.rows), [&](int tile) {
    const int row = tile * kRows;
    for (int k = 0; k < work.k; k += kWidth) {
      ring.fill_tile(maps.a, k, row);
      if constexpr (Is::kTensors == 2) ring.fill_tile(maps.a2, k, row);
      for (int part = 0; part < (Is::kResident ? 0 : Is::kParts); ++part) {
        ring.fill(Is::kPartBytes,
                  [&](int stage, std::uint64_t* full) { load_b(ring.at(stage), k, part, full); });
      }
    }
    for (int c = column; c < (Is::kForward ? 0 : column + Is::kColumns); c += kWidth) {
      ring.fill_tile(maps.y, c, row);
      if constexpr (Is::kJoins && !Is::kSparse) ring.fill_tile(maps.other, c, row);
      if constexpr (Is::kTwoNorms) ring.fill_tile(maps.shortcut, c, row);
      if constexpr (Is::kSparse) {
        ring.fill(SparseRows::kBytes, [&](int stage, std::uint64_t* full) {
          load_tile(ring.at(stage), maps.other, c, work.sparse.before(row), full);
        });
      }
    }
  });
}

// The prologue's Mix for a channel, with v = a and u = a2.
template <Prologue kPrologue>
REDLINE_DEVICE Mix mix_of(const Gemm& work, int channel) {
  if constexpr (kPrologue == Prologue::norm_grad) {
    const Slope slope(work.after, channel, work.k, static_cast<float>(work.rows));
    return {slope.a, slope.b, slope.c};
  }
  Mix found{};
  if (work.finalizes) {
    const ChannelNorm norm = norm_of(work.norm, channel);
    if (blockIdx.x == 0 && blockIdx.y == 0) keep(work.norm, channel, norm);
    found = {1.0F, norm.scale, norm.bias};
  } else {
    found = {1.0F, work.affine[channel], work.affine[work.k + channel]};
  }
  if (work.a2_affine == nullptr) return found;
  return {work.a2_affine[channel], found.q, found.r + work.a2_affine[work.k + channel]};
}

// A consumer's work.
template <typename T, typename Is>
class Consumer {
  static constexpr Prologue kPrologue = Is::kPrologue;
  static constexpr bool kResident = Is::kResident, kFromShared = kPrologue == Prologue::none;  // b, a
  using A = std::conditional_t<kFromShared, const std::byte*, Fragment<>>;
  using Product = float[Is::kParts][Is::kPart / 2];

 public:
  REDLINE_DEVICE Consumer(const Gemm& work, const GemmMaps& maps, const Memory& memory, const Ring& ring)
      : work_(work), maps_(maps), memory_(memory), ring_(ring), table_(memory.table, work.k) {}

  REDLINE_DEVICE void run(std::uint64_t* b_full, ReduceSpace space) {
    if constexpr (kResident) barrier_wait(b_full, 0);
    if constexpr (Is::kJoins) fetch_mask(static_cast<int>(blockIdx.y));
    for (int tile = static_cast<int>(blockIdx.y); tile < row_tiles(work_.rows);
         tile += static_cast<int>(gridDim.y)) {
      Product d;
      row_ = tile * kRows + warp_id() * kWarpRows;
      multiply_tile(d);
      finish_tile(d, tile + static_cast<int>(gridDim.y));
    }
    if (lane_id() == 0) wait_stores();
    const auto sum = [&](const float* mean, ReduceSpace to, const auto& put) {
      sum_columns(sums_, mean, reinterpret_cast<float*>(memory_.ring), to, put);
    };
    if constexpr (Is::kForward) {
      sum(nullptr, space, [&](int which, int c, double total) {
        (which == 0 ? work_.sums : work_.sums + work_.n)[column_ + c] = static_cast<float>(total);
      });
    } else {
      const auto put_to = [&](const GatedNorm& norm) {
        return
            [&](int which, int c, double total) { put_gradient(norm, work_.n, which, column_ + c, total); };
      };
      sum(work_.before.saved + column_, space, put_to(work_.before));
      if constexpr (Is::kTwoNorms) {
#pragma unroll
        for (int i = 0; i < Is::kTiles; ++i) sums_[i].second = shortcut_sums_[i];
        // Other blocks may still use the space of the first sums.
        space.partials += std::int64_t{2} * work_.n * gridDim.y;
        space.counters += gridDim.x;
        sum(work_.shortcut.saved + column_, space, put_to(work_.shortcut));
      }
    }
  }

 private:
  // The stages that a product in flight reads.
  struct Stages {
    int a, b[Is::kParts];
  };

  // The K loop. While a product is in flight, the next K block is waited for and prepared. Two products are
  // in flight if all that they read is in the ring or resident; otherwise there are not enough registers, or
  // not enough stages for b.
  REDLINE_DEVICE void multiply_tile(Product& d) {
    constexpr bool kTwo = kFromShared && kResident;
    A a[2];  // of this K block and the one before
    Stages read{};
    for (int begin = 0; begin < work_.k; begin += 2 * kWidth) {
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const int k = begin + odd * kWidth;
        if (k >= work_.k) break;
        const int a_at = prepare(a[odd], k);
        if (!kTwo && k > 0) finish_product<0>(read);
        if constexpr (!kResident) {
          for (int& stage : read.b) stage = ring_.take();
        }
        wgmma_fence();
#pragma unroll
        for (int part = 0; part < Is::kParts; ++part) {
          const std::byte* b = kResident ? memory_.b + (k / kWidth * Is::kParts + part) * Is::kPartBytes
                                         : ring_.at(read.b[part]);
          multiply_block<T, !Is::kForward>(d[part], a[odd], b, k > 0);
        }
        wgmma_commit();
        if (kTwo && k > 0) finish_product<1>(read);
        read.a = a_at;
        release_stored();
      }
    }
    finish_product<0>(read);
#pragma unroll
    for (auto& part : d) settle(part);
  }
  // Waits for the product that read these stages; kOpen later ones may still be in flight.
  template <int kOpen>
  REDLINE_DEVICE void finish_product(const Stages& read) {
    wgmma_wait<kOpen>();
    if constexpr (kFromShared) ring_.release_async(read.a);
    if constexpr (!kResident) {
      for (const int stage : read.b) ring_.release_async(stage);
    }
  }

  // The prologue of a K block. Returns the stage from which the product reads a; -1 if it reads registers.
  REDLINE_DEVICE int prepare(A& a, int k) {
    if constexpr (kFromShared) {
      const int stage = ring_.take();
      a = ring_.at(stage) + warp_id() / 4 * (4 * kWarpTileBytes);
      return stage;
    } else if constexpr (kPrologue == Prologue::activate) {
      const int stage = ring_.take();
      const bool stores = work_.made != nullptr && blockIdx.x == 0;
      load(a, ring_.at(stage));
      if (!stores) ring_.release(stage);
      mix<T, true>(a, a, stores ? ring_.at(stage) : nullptr, table_, k);
      if (stores) store_stage(stage, maps_.made, k);
      return -1;
    } else {
      const int v_at = ring_.take(), u_at = ring_.take();
      Fragment<> v;
      load(v, ring_.at(v_at));
      load(a, ring_.at(u_at));
      ring_.release(v_at);
      const bool stores = blockIdx.x == 0;
      if (!stores) ring_.release(u_at);
      mix<T, kPrologue == Prologue::join>(a, v, stores ? ring_.at(u_at) : nullptr, table_, k);
      if (stores) store_stage(u_at, maps_.made, k);
      if constexpr (kPrologue == Prologue::join) store_mask(a, k);
      return -1;
    }
  }
  REDLINE_DEVICE void store_mask(const Fragment<>& made, int k) {
    if (work_.made_mask == nullptr || blockIdx.x != 0) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint2 bits = positive<T>(made, half);
      const std::int64_t row = row_ + lane_id() / 4 + half * 8;
      if (lane_id() % 4 == half && row < work_.rows)
        reinterpret_cast<uint2*>(work_.made_mask)[(row * work_.k + k) / 64] = bits;
    }
  }

  // Stores this warp's rows of a stage, which is released when they have been read.
  REDLINE_DEVICE void store_stage(int stage, const CUtensorMap& map, int column) {
    release_stored();
    store_rows(map, column, row_, ring_.at(stage) + warp_id() * kWarpTileBytes);
    stored_ = stage;
  }
  REDLINE_DEVICE void release_stored() {
    if (stored_ < 0) return;
    if (lane_id() == 0) wait_stores_read<0>();
    ring_.release_async(stored_);
    stored_ = -1;
  }

  // The bits of a tile's rows, for each 64 columns: lane r has the first 32 of row r, lane 16 + r the others.
  struct Mask {
    std::uint32_t words[Is::kTiles];
  };
  REDLINE_DEVICE void fetch_mask(int tile) {
    const std::int64_t row = std::int64_t{tile} * kRows + warp_id() * kWarpRows + lane_id() % 16;
    const auto* words = reinterpret_cast<const std::uint32_t*>(work_.before.gate.mask);
#pragma unroll
    for (int i = 0; i < Is::kTiles; ++i) {
      const std::int64_t word = (row * work_.n + column_ + i * kWidth) / 32 + lane_id() / 16;
      mask_.words[i] = row < work_.rows ? words[word] : 0U;
    }
  }

  // Of a sparse `other`: where in its stage the row of lane % 16 lies; -1 where it has none.
  REDLINE_DEVICE int sparse_at() const {
    const auto row = static_cast<int>(row_) + lane_id() % kWarpRows;
    const int first = work_.sparse.before(static_cast<int>(row_) - warp_id() * kWarpRows);
    return work_.sparse.has(row) ? work_.sparse.before(row) - first : -1;
  }

  // The epilogue, and what is read ahead for the next one.
  REDLINE_DEVICE void finish_tile(const Product& d, int next_tile) {
    const Mask mask = mask_;
    if constexpr (Is::kJoins) {
      if (next_tile < row_tiles(work_.rows)) fetch_mask(next_tile);
    }
    // TMA reads zeros beyond the last row; only a prologue makes anything else of them.
    const int rows =
        kFromShared ? kWarpRows : static_cast<int>(min(work_.rows - row_, std::int64_t{kWarpRows}));
    const int sparse = Is::kSparse ? sparse_at() : 0;
#pragma unroll
    for (int i = 0; i < Is::kTiles; ++i) {
      const float* product = &d[i * kWidth / Is::kPart][i * kWidth % Is::kPart / 2];
      if constexpr (Is::kForward) {
        store_and_sum(product, i, rows);
      } else {
        gate_and_sum(product, i, rows, mask.words[i], sparse);
      }
    }
  }
  REDLINE_DEVICE void store_and_sum(const float* d, int i, int rows) {
    std::byte* staged = memory_.staging + i % Is::kStaging * kTileBytes + warp_id() * kWarpTileBytes;
    if (lane_id() == 0) wait_stores_read<Is::kStaging - 1>();
    __syncwarp();
    stage_rows<T>(staged, d);
    __syncwarp();
    sum_rows<T>(staged, rows, sums_[i]);
    store_rows(maps_.out, column_ + i * kWidth, row_, staged);
  }
  REDLINE_DEVICE void gate_and_sum(const float* d, int i, int rows, std::uint32_t mask, int sparse) {
    const int column = column_ + i * kWidth;
    const auto mine = [&](int stage) { return ring_.at(stage) + warp_id() * kWarpTileBytes; };
    if constexpr (Is::kEpilogue == Epilogue::gated) {
      const AffineGate gate(work_.before.gate.affine, work_.n, column, rows);
      const int y_at = ring_.take();
      gate_rows<T>(d, mine(y_at), sums_[i], gate, [](int /*row*/) { return Pair<T>{}; });
      store_stage(y_at, maps_.out, column);
    } else {
      Pair<T> shortcut[kWarpRows];
      const auto gate = [&](int row, float2 gradient, float2 /*y*/, float2 other) -> float2 {
        const unsigned bits = __shfl_sync(~0U, mask, row + (lane_id() & 16)) >> lane_id() % 16 * 2;
        const float2 value{(bits & 1U) != 0U ? gradient.x + other.x : 0.0F,
                           (bits & 2U) != 0U ? gradient.y + other.y : 0.0F};
        if constexpr (Is::kTwoNorms) {
          const float2 y = shortcut[row].floats();
          shortcut_sums_[i].x = fmaf(value.x, y.x, shortcut_sums_[i].x);
          shortcut_sums_[i].y = fmaf(value.y, y.y, shortcut_sums_[i].y);
        }
        return value;
      };
      const int y_at = ring_.take(), other_at = ring_.take();
      const int shortcut_at = Is::kTwoNorms ? ring_.take() : -1;
      const auto other = [&](int row) {
        if constexpr (Is::kTwoNorms) shortcut[row] = column_pair<T>(mine(shortcut_at), row);
        if constexpr (!Is::kSparse) return column_pair<T>(mine(other_at), row);
        const int at = __shfl_sync(~0U, sparse, row);
        return at < 0 ? Pair<T>{} : column_pair<T>(ring_.at(other_at), at);
      };
      gate_rows<T>(d, mine(y_at), sums_[i], gate, other);
      ring_.release(other_at);
      if constexpr (Is::kTwoNorms) ring_.release(shortcut_at);
      store_stage(y_at, maps_.out, column);
    }
  }

  const Gemm& work_;
  const GemmMaps& maps_;
  const Memory& memory_;
  Ring ring_;
  MixTable<Is::kTensors> table_;
  const int column_ = static_cast<int>(blockIdx.x) * Is::kColumns;  // the first of the block's
  int row_ = 0;      // the first of the warp's, of the tile at hand
  int stored_ = -1;  // the stage that a store of this warp may still read
  ColumnSums sums_[Is::kTiles];
  float2 shortcut_sums_[Is::kTiles] = {};  // of products with the shortcut's y
  Mask mask_{};                            // of the next tile
};

#endif

template <typename T, typename Is>
__global__ void __launch_bounds__(hopper::kBlock, Is::form().most_blocks())
    gemm_kernel(const __grid_constant__ Gemm work, const __grid_constant__ GemmMaps maps, int stages,
                ReduceSpace space) {
#ifdef REDLINE_HOPPER
  extern __shared__ std::byte dynamic[];
  __shared__ Barriers bars;
  const Memory memory(dynamic, Is::form(), work.k, stages);
  if (threadIdx.x == 0) {
    barrier_init(&bars.b, 1);
    bars.ring.init();
    publish_barriers();
  }
  begin_kernel();
  if constexpr (Is::kPrologue != Prologue::none) {
    MixTable<Is::kTensors>(memory.table, work.k).fill([&](int channel) {
      return mix_of<Is::kPrologue>(work, channel);
    });
  }
  __syncthreads();
  const Ring ring(bars.ring, memory.ring, kTileBytes, stages);
  split_roles<Is::form().most_blocks()>(
      [&] { produce<Is>(work, maps, ring, memory.b, &bars.b); },
      [&] { Consumer<T, Is>(work, maps, memory, ring).run(&bars.b, space); });
#endif
}

using Kernel = void (*)(Gemm, GemmMaps, int, ReduceSpace);
constexpr std::size_t kForms = std::size(kGemmForms);

template <typename T, std::size_t... kAt>
constexpr std::array<Kernel, kForms> kernels_of(std::index_sequence<kAt...> /*of kGemmForms*/) {
  return {gemm_kernel<T, Form<kGemmForms[kAt].prologue, kGemmForms[kAt].epilogue, kGemmForms[kAt].columns,
                              kGemmForms[kAt].resident, kGemmForms[kAt].staging>>...};
}

Kernel kernel_of(Type type, const GemmForm& form) {
  const auto at = static_cast<std::size_t>(std::ranges::find(kGemmForms, form) - std::begin(kGemmForms));
  return dispatch_narrow(type,
                         [&]<typename T>() { return kernels_of<T>(std::make_index_sequence<kForms>())[at]; });
}

int stages_of(const Gemm& work, const cudaDeviceProp& device, const GemmCandidate& candidate) {
  const std::size_t share =
      device.sharedMemPerMultiprocessor / static_cast<std::size_t>(candidate.blocks_each) -
      device.reservedSharedMemPerBlock;
  return candidate.form.stages(work.k, std::min(share, device.sharedMemPerBlockOptin));
}

}  // namespace

std::vector<GemmCandidate> gemm_candidates(const Gemm& work, const cudaDeviceProp& device) {
  if (!has_hopper_kernels() || work.type == Type::f32 || work.rows < 1) return {};
  std::vector<GemmCandidate> found;
  for (const GemmForm& form : kGemmForms) {
    if (!form.matches(work.prologue, work.epilogue, work.k, work.n)) continue;
    for (int blocks_each = 1; blocks_each <= form.most_blocks(); ++blocks_each) {
      if (stages_of(work, device, {form, blocks_each}) > 0) found.push_back({form, blocks_each});
    }
  }
  // A block that has all columns reads a once.
  std::ranges::stable_partition(found, [&](const auto& each) { return each.form.columns == work.n; });
  return found;
}

TileLaunch gemm(const Gemm& work, const cudaDeviceProp& device, const GemmCandidate& candidate) {
  const GemmForm& form = candidate.form;
  const int columns = work.n / form.columns, stages = stages_of(work, device, candidate);
  const int wanted = std::max(1, device.multiProcessorCount * candidate.blocks_each / columns);
  const int blocks = std::min(hopper::row_tiles(work.rows), wanted);
  const auto map = [&](const void* data, int channels, int box_rows) {
    return describe_rows(data, work.type, work.rows, channels, box_rows);
  };
  using hopper::kRows;
  using hopper::kWarpRows;
  const GemmMaps maps{
      map(work.a, work.k, kRows),
      map(work.a2, work.k, kRows),
      map(work.made, work.k, kWarpRows),
      form.epilogue == Epilogue::sums
          ? describe_rows(work.b, work.type, work.n, work.k, std::min(form.columns, 128))
          : describe_rows(work.b, work.type, work.k, work.n, hopper::kWidth),
      map(work.before.y, work.n, kRows),
      form.epilogue == Epilogue::joined_sparse
          ? describe_rows(work.other, work.type, work.sparse.before(static_cast<int>(work.rows)), work.n,
                          SparseRows::kMost)
          : map(work.other, work.n, kRows),
      map(work.shortcut.y, work.n, kRows),
      map(work.out, work.n, kWarpRows)};
  const TileGrid grid{.columns = columns,
                      .blocks = blocks,
                      .threads = hopper::kBlock,
                      .shared_bytes = form.shared_bytes(work.k, stages),
                      .partials = static_cast<std::size_t>(blocks * form.reduce_spaces()) * 2 *
                                  static_cast<std::size_t>(work.n),
                      .early = is_small(work.rows * std::max(work.k, work.n) / 8)};
  return make_launch(kernel_of(work.type, form), grid, device, work, maps, stages);
}

}  // namespace redline::backend::cuda
