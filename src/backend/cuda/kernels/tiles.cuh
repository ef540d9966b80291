// The parts of which Hopper kernels with matrix products are built: rings of tiles that TMA fills, the
// product of a K block by wgmma, prologues, stores, and sums over columns. hopper.cuh has the instructions.
//
// A tile is 128 rows by 64 columns of 16-bit numbers: one TMA box, with rows of 128 bytes, swizzled. A K
// block is 64 deep, so a tile is also what a product takes from A at a time. A block of threads has eight
// consumer warps, in two groups of four as wgmma wants them, and a producer thread that keeps the rings full.
// A warp has sixteen rows of every tile to itself, from the product to the store, so consumers seldom wait
// for each other. A grid is column tiles by blocks that share the rows: block y has the tiles y, y +
// gridDim.y, ...
#pragma once

#include <algorithm>

#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/tile_launch.cuh"

namespace redline::backend::cuda::hopper {

inline constexpr int kRows = 128, kWidth = 64;  // of a tile
inline constexpr int kTileBytes = kRows * kWidth * 2;
inline constexpr int kWarpRows = 16, kWarpTileBytes = kWarpRows * kWidth * 2;
inline constexpr int kGroup = 128;  // threads
inline constexpr int kWarps = kRows / kWarpRows, kConsumers = kWarps * 32;
inline constexpr int kBlock = kConsumers + kGroup;  // registers move by group, so the producer has one
inline constexpr std::size_t kAlignment = 1024;  // dynamic shared memory beyond what is used: see aligned()

__host__ __device__ constexpr int row_tiles(std::int64_t rows) {
  return static_cast<int>((rows + kRows - 1) / kRows);
}

#ifdef REDLINE_HOPPER

REDLINE_DEVICE int lane_id() { return static_cast<int>(threadIdx.x) % 32; }
REDLINE_DEVICE int warp_id() { return static_cast<int>(threadIdx.x) / 32; }
REDLINE_DEVICE void sync_consumers() { sync_group(1, kConsumers); }

// Calls body(tile) for those of `tiles` tiles that belong to this block.
template <typename Body>
REDLINE_DEVICE void for_tiles(int tiles, const Body& body) {
  for (int tile = static_cast<int>(blockIdx.y); tile < tiles; tile += static_cast<int>(gridDim.y)) body(tile);
}

// Splits the threads of a block: one produces, the warps of the first two groups consume. The producer's
// group gives registers to the others, as many as kBlocksEach blocks per multiprocessor allow.
template <int kBlocksEach, typename Produce, typename Consume>
REDLINE_DEVICE void split_roles(const Produce& produce, const Consume& consume) {
  constexpr int kFew = 24, kMany = kBlocksEach == 1 ? 240 : 104;
  static_assert((kFew * kGroup + kMany * kConsumers) * kBlocksEach <= 65536);
  if (threadIdx.x >= kConsumers) {
    give_registers<kFew>();
    if (threadIdx.x == kConsumers) produce();
  } else {
    take_registers<kMany>();
    consume();
  }
}

// --- Rings ---

// Two barriers for each stage of a ring, in shared memory.
template <int kMost>
struct RingBarriers {
  std::uint64_t full[kMost], empty[kMost];
  // By one thread, before publish_barriers(). `releases` of a stage: one by each consumer warp, usually.
  __device__ void init(unsigned releases = kWarps) {
    for (int i = 0; i < kMost; ++i) {
      barrier_init(&full[i], 1);
      barrier_init(&empty[i], releases);
    }
  }
  // The producer waits until a stage is empty, and says how many bytes will fill it.
  REDLINE_DEVICE void begin_fill(int stage, unsigned parity, unsigned bytes) {
    barrier_wait(&empty[stage], parity ^ 1U);
    barrier_expect(&full[stage], bytes);
  }
};

// Stages of shared memory that the producer fills by TMA, and the consumers take in the same order and
// release in any. Every thread has a Ring of its own, which knows its place.
class Ring {
 public:
  template <int kMost>
  REDLINE_DEVICE Ring(RingBarriers<kMost>& barriers, std::byte* memory, int stage_bytes, int stages)
      : full_(barriers.full),
        empty_(barriers.empty),
        memory_(memory),
        stage_bytes_(stage_bytes),
        stages_(stages) {}

  REDLINE_DEVICE std::byte* at(int stage) const { return memory_ + stage * stage_bytes_; }

  // The producer: waits until the next stage is empty; load(stage, barrier) then loads that many bytes.
  template <typename Load>
  REDLINE_DEVICE void fill(unsigned bytes, const Load& load) {
    barrier_wait(&empty_[at_.stage], at_.parity ^ 1U);
    barrier_expect(&full_[at_.stage], bytes);
    load(at_.stage, &full_[at_.stage]);
    at_.next(stages_);
  }
  REDLINE_DEVICE void fill_tile(const CUtensorMap& map, int column, int row) {
    fill(kTileBytes, [&](int stage, std::uint64_t* full) { load_tile(at(stage), map, column, row, full); });
  }
  // A consumer: waits until the next stage is full, and returns it.
  REDLINE_DEVICE int take() {
    const int stage = at_.stage;
    barrier_wait(&full_[stage], at_.parity);
    at_.next(stages_);
    return stage;
  }
  // A warp is done with a stage. Without the fence, TMA might overwrite the stage before earlier loads from
  // it have reached their registers.
  REDLINE_DEVICE void release(int stage) const {
    fence_async();
    release_async(stage);
  }
  // The same for a stage that only wgmma and TMA have read since it was filled or fenced.
  REDLINE_DEVICE void release_async(int stage) const {
    __syncwarp();
    if (lane_id() == 0) barrier_arrive(&empty_[stage]);
  }

 private:
  std::uint64_t *full_, *empty_;
  std::byte* memory_;
  int stage_bytes_, stages_;
  Cursor at_;
};

// --- Products ---

// The A operand of a K block in registers, as wgmma takes it: kSteps x 16 columns of a warp's sixteen rows.
template <int kSteps = kWidth / 16>
struct Fragment {
  std::uint32_t v[kSteps][4];
};

// The offset in a tile of a lane's row of a step's matrices.
REDLINE_DEVICE int fragment_at(int step) {
  return warp_id() * kWarpTileBytes + swizzled(lane_id() % 16, 2 * step + lane_id() / 16);
}
// A warp's rows of a tile.
REDLINE_DEVICE void load(Fragment<>& to, const std::byte* tile) {
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) ldmatrix(to.v[step], tile + fragment_at(step));
}

// The descriptor of sixteen of K of a B block in shared memory, which has a row along K for each column, or,
// transposed, boxes of 64 columns with a row for each of K.
template <bool kTransposed>
REDLINE_DEVICE std::uint64_t b_operand(const std::byte* b, int step) {
  return kTransposed ? descriptor(b + step * 16 * 128, kWidth * kWidth * 2, 1024)
                     : descriptor(b + step * 32, 16, 1024);
}

// Begins d (+)= a * b for one K block; `add` false starts from zero. wgmma_fence() comes before, and
// wgmma_commit() after.
template <typename T, bool kTransposed, int kSums, int kSteps>
REDLINE_DEVICE void multiply_block(float (&d)[kSums], const Fragment<kSteps>& a, const std::byte* b,
                                   bool add) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
    wgmma<T, kTransposed>(d, a.v[step], b_operand<kTransposed>(b, step), add || step > 0);
}
// The same with a in shared memory: the rows of this group of warps.
template <typename T, bool kTransposed, int kSums>
REDLINE_DEVICE void multiply_block(float (&d)[kSums], const std::byte* a, const std::byte* b, bool add) {
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step)
    wgmma<T, false, kTransposed>(d, descriptor(a + step * 32, 16, 1024), b_operand<kTransposed>(b, step),
                                 add || step > 0);
}

// --- Prologues: A computed from one tensor or from two ---

// For a channel: made = p * u + q * v + r. With a single tensor, v, p is not used.
struct Mix {
  float p, q, r;
};

// The Mix of every channel, in shared memory, two neighbours side by side as a lane needs them.
template <int kTensors>
class MixTable {
 public:
  __device__ MixTable(std::byte* memory, int channels)
      : fours_(reinterpret_cast<float4*>(memory)),
        rests_(reinterpret_cast<float2*>(fours_ + channels / 2)),
        pairs_(channels / 2) {}

  // By all threads of the block; find(channel) gives its Mix.
  template <typename Find>
  REDLINE_DEVICE void fill(const Find& find) {
    for (int pair = static_cast<int>(threadIdx.x); pair < pairs_; pair += kBlock) {
      const Mix first = find(2 * pair), second = find(2 * pair + 1);
      if constexpr (kTensors == 1) {
        fours_[pair] = {first.q, second.q, first.r, second.r};
      } else {
        fours_[pair] = {first.p, second.p, first.q, second.q};
        rests_[pair] = {first.r, second.r};
      }
    }
  }
  REDLINE_DEVICE float2 of(int pair, float2 u, float2 v) const {
    const float4 four = fours_[pair];
    if constexpr (kTensors == 1) return {fmaf(four.x, v.x, four.z), fmaf(four.y, v.y, four.w)};
    const float2 rest = rests_[pair];
    return {fmaf(four.x, u.x, fmaf(four.z, v.x, rest.x)), fmaf(four.y, u.y, fmaf(four.w, v.y, rest.y))};
  }

 private:
  float4* fours_;  // of one tensor q and r, of two p and q
  float2* rests_;  // of two tensors r
  int pairs_;
};

// Computes A from u and v in the place of u, rounded as if it had been stored, and writes it to the tile `to`
// unless that is null. `channel` is the first of the K block.
template <typename T, bool kRelu, int kTensors>
REDLINE_DEVICE void mix(Fragment<>& u, const Fragment<>& v, std::byte* to, const MixTable<kTensors>& by,
                        int channel) {
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const float2 value =
          by.of(channel / 2 + step * 8 + part / 2 * 4 + lane_id() % 4,
                Pair<T>::of_bits(u.v[step][part]).floats(), Pair<T>::of_bits(v.v[step][part]).floats());
      u.v[step][part] = (kRelu ? Pair<T>::relu_of(value.x, value.y) : Pair<T>::of(value.x, value.y)).bits();
    }
    if (to != nullptr) stmatrix(to + fragment_at(step), u.v[step]);
  }
}

// A bit for each entry of a K block, whether it is positive, in the order of memory: of the warp's row `lane
// / 4`, or with `half` 1 of the row eight below. All four lanes of a row get them.
template <typename T>
REDLINE_DEVICE uint2 positive(const Fragment<>& made, int half) {
  std::uint32_t words[2] = {};
#pragma unroll
  for (int eight = 0; eight < kWidth / 8; ++eight) {
    const std::uint32_t bits = Pair<T>::of_bits(made.v[eight / 2][eight % 2 * 2 + half]).positive();
    words[eight / 4] |= bits << eight % 4 * 8;
  }
#pragma unroll
  for (std::uint32_t& word : words) {
    word <<= lane_id() % 4 * 2;
    word |= __shfl_xor_sync(~0U, word, 1);
    word |= __shfl_xor_sync(~0U, word, 2);
  }
  return {words[0], words[1]};
}

// --- Epilogues: a warp's sixteen rows of a product, 64 columns at a time ---

// Rounds the rows and transposes them in shared memory, so that a lane has two whole columns: column_pair().
template <typename T>
REDLINE_DEVICE void stage_rows(std::byte* warp_tile, const float* d) {
#pragma unroll
  for (int j = 0; j < kWidth / 8; j += 2) {
    std::uint32_t rounded[4];
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int from = 4 * (j + part / 2) + part % 2 * 2;
      rounded[part] = Pair<T>::of(d[from], d[from + 1]).bits();
    }
    stmatrix(warp_tile + swizzled(lane_id() % 16, j + lane_id() / 16), rounded);
  }
}

// A lane's two columns of a row.
template <typename T>
REDLINE_DEVICE Pair<T>& column_pair(std::byte* warp_tile, int row) {
  return *reinterpret_cast<Pair<T>*>(warp_tile + swizzled(row, lane_id() / 4) + lane_id() % 4 * 4);
}

// Stores a warp's rows by TMA, once all its lanes have written them. Rows outside the tensor are left out.
REDLINE_DEVICE void store_rows(const CUtensorMap& map, int column, int row, const std::byte* warp_tile) {
  fence_async();
  __syncwarp();
  if (lane_id() == 0) {
    store_tile(map, column, row, warp_tile);
    commit_stores();
  }
}

// Two sums of each of a lane's two columns: of values, and of values times factors.
struct ColumnSums {
  float2 first{}, second{};
  REDLINE_DEVICE void add(float2 value, float2 factor) {
    first.x += value.x;
    first.y += value.y;
    second.x = fmaf(value.x, factor.x, second.x);
    second.y = fmaf(value.y, factor.y, second.y);
  }
};

// Adds up the first `rows` of a warp's rows, and their squares.
template <typename T>
REDLINE_DEVICE void sum_rows(std::byte* warp_tile, int rows, ColumnSums& sums) {
#pragma unroll
  for (int row = 0; row < kWarpRows; ++row) {
    const float2 value = column_pair<T>(warp_tile, row).floats();
    if (row < rows) sums.add(value, value);
  }
}

// Replaces y by gate(row, d, y, other(row)) in every row, and adds the result up, alone and times y. d is
// transposed in y's place, once y is in registers.
template <typename T, typename Gate, typename Other>
REDLINE_DEVICE void gate_rows(const float* d, std::byte* y, ColumnSums& sums, const Gate& gate,
                              const Other& other) {
  Pair<T> inputs[kWarpRows], others[kWarpRows];
#pragma unroll
  for (int row = 0; row < kWarpRows; ++row) {
    inputs[row] = column_pair<T>(y, row);
    others[row] = other(row);
  }
  __syncwarp();
  stage_rows<T>(y, d);
  __syncwarp();
  Pair<T>
      products[kWarpRows];  // all are read first: the compiler cannot know that no write is for a later read
#pragma unroll
  for (int row = 0; row < kWarpRows; ++row) products[row] = column_pair<T>(y, row);
#pragma unroll
  for (int row = 0; row < kWarpRows; ++row) {
    const float2 input = inputs[row].floats();
    const float2 value = gate(row, products[row].floats(), input, others[row].floats());
    sums.add(value, input);
    column_pair<T>(y, row) = Pair<T>::of(value.x, value.y);
  }
}

// The gate of relu(affine(y)) at a lane's two columns, of `rows` rows.
struct AffineGate {
  float2 scale, bias;
  int rows;
  REDLINE_DEVICE AffineGate(const float* affine, int channels, int column, int of_rows)
      : scale(__ldg(reinterpret_cast<const float2*>(affine + column) + lane_id())),
        bias(__ldg(reinterpret_cast<const float2*>(affine + channels + column) + lane_id())),
        rows(of_rows) {}
  REDLINE_DEVICE float2 operator()(int row, float2 gradient, float2 y, float2 /*other*/) const {
    if (row >= rows || fmaf(y.x, scale.x, bias.x) <= 0.0F) gradient.x = 0.0F;
    if (row >= rows || fmaf(y.y, scale.y, bias.y) <= 0.0F) gradient.y = 0.0F;
    return gradient;
  }
};

// Adds up the sums of all warps and of all blocks that have these columns, in a fixed order, so that the
// result does not depend on timing. In the last block, put(which, column, total) is called for both sums of
// every column. With `mean`, the factors have not been reduced by it yet. `scratch`: [kWarps][2][columns].
template <int kTiles, typename Put>
REDLINE_DEVICE void sum_columns(const ColumnSums (&sums)[kTiles], const float* mean, float* scratch,
                                ReduceSpace space, const Put& put) {
  constexpr int kColumns = kTiles * kWidth;
  sync_consumers();  // the memory is free now
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int c = tile * kWidth + 2 * lane_id();
    float2 *to = reinterpret_cast<float2*>(scratch + warp_id() * 2 * kColumns + c),
           second = sums[tile].second;
    if (mean != nullptr) {
      second.x -= mean[c] * sums[tile].first.x;
      second.y -= mean[c + 1] * sums[tile].first.y;
    }
    to[0] = sums[tile].first;
    to[kColumns / 2] = second;
  }
  sync_consumers();
  constexpr int kCount = std::min(2 * kColumns, kConsumers), kEach = 2 * kColumns / kCount;
  const int t = static_cast<int>(threadIdx.x);
  float mine[kEach] = {};
  if (t < kCount) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      for (int warp = 0; warp < kWarps; ++warp) mine[i] += scratch[warp * 2 * kColumns + i * kCount + t];
    }
  }
  double totals[kEach] = {};
  if (!sum_over_blocks<kCount>(mine, space, sync_consumers, totals)) return;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = i * kCount + t;
    put(at / kColumns, at % kColumns, totals[i]);
  }
}

// --- Products that are transposed: a group of warps has 64 filters as its rows ---

// Two sums of each of a thread's two filters: see wgmma.
struct FilterSums {
  float first[2] = {}, second[2] = {};
  REDLINE_DEVICE void add(int half, float2 value, float2 factor) {
    first[half] += value.x + value.y;
    second[half] = fmaf(value.x, factor.x, fmaf(value.y, factor.y, second[half]));
  }
};

// As sum_columns(). The groups have the same filters (kSame), or each its own. put() is called with a filter
// of the thread's group.
template <bool kSame, typename Put>
REDLINE_DEVICE void sum_filters(const FilterSums& sums, const float* mean, float (&scratch)[2][2][kWidth],
                                ReduceSpace space, const Put& put) {
  const int t = static_cast<int>(threadIdx.x), group = t / kGroup;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int filter = warp_id() % 4 * 16 + lane_id() / 4 + 8 * half;
    float first = sums.first[half], second = sums.second[half];
    if (mean != nullptr) second -= mean[filter] * first;
#pragma unroll
    for (int offset = 1; offset < 4; offset <<= 1) {
      first += __shfl_xor_sync(~0U, first, offset);
      second += __shfl_xor_sync(~0U, second, offset);
    }
    if (lane_id() % 4 == 0) {
      scratch[group][0][filter] = first;
      scratch[group][1][filter] = second;
    }
  }
  sync_consumers();
  const int which = t % kGroup / kWidth, filter = t % kWidth;
  const float mine[1] = {kSame ? scratch[0][which][filter] + scratch[1][which][filter]
                               : scratch[group][which][filter]};
  double totals[1];
  if (sum_over_blocks < kSame ? kGroup : kConsumers > (mine, space, sync_consumers, totals))
    put(which, filter, totals[0]);
}

#endif

}  // namespace redline::backend::cuda::hopper
