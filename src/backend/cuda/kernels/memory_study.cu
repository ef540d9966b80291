#include "backend/cuda/kernels/memory_study.h"

#include <cuda_pipeline.h>

#include <algorithm>
#include <limits>

#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/vec.cuh"
#include "backend/memory_pattern.h"

namespace redline::backend::cuda {
namespace {

constexpr int kUnroll = 4;
constexpr std::uint32_t kWritten = 0x5A5A5A5A;

__device__ std::size_t thread_of_grid() {
  return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ std::size_t threads_of_grid() { return static_cast<std::size_t>(gridDim.x) * blockDim.x; }

// Sources of a copy: word i of the result.
template <typename Word>
struct InOrder {
  const Word* from;
  __device__ Word operator()(std::size_t i) const { return __ldg(from + i); }
};
// The y of the grid is where in each stretch of `stride` words a block reads.
struct Strided {
  const std::uint32_t* from;
  int stride;
  __device__ std::uint32_t operator()(std::size_t i) const { return __ldg(from + blockIdx.y + i * stride); }
};
struct Scattered {
  const std::uint32_t* from;
  Scatter scatter;
  __device__ std::uint32_t operator()(std::size_t i) const { return __ldg(from + scatter(i)); }
};

// Calls take(i, source(i)) for every word; each thread has kUnroll loads in flight before it takes the
// first.
template <typename Source, typename Take>
__device__ void for_words(std::size_t words, const Source& source, const Take& take) {
  const std::size_t step = threads_of_grid();
  std::size_t i = thread_of_grid();
  for (; i + (kUnroll - 1) * step < words; i += kUnroll * step) {
    decltype(source(i)) held[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) held[u] = source(i + u * step);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) take(i + u * step, held[u]);
  }
  for (; i < words; i += step) take(i, source(i));
}

// The y of the grid has `words` each.
template <typename Word, typename Source>
__global__ void copy_kernel(Word* to, std::size_t words, Source source) {
  Word* own = to + blockIdx.y * words;
  for_words(words, source, [&](std::size_t i, const Word& word) { own[i] = word; });
}

constexpr int kTile = 32, kTileRows = 8;

// strided(i, words, 32) is the transpose of a matrix of 32 columns: tiles of 32 x 32 are read and written by
// rows.
__global__ void strided_staged_kernel(std::uint32_t* __restrict__ to, const std::uint32_t* __restrict__ from,
                                      std::size_t words) {
  __shared__ std::uint32_t tile[kTile][kTile + 1];  // the spare column keeps banks apart
  const std::size_t rows = words / kTile, tiles = rows / kTile;
  const int x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  for (std::size_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const std::size_t first = t * kTile;
#pragma unroll
    for (int row = y; row < kTile; row += kTileRows) tile[row][x] = from[(first + row) * kTile + x];
    __syncthreads();
#pragma unroll
    for (int row = y; row < kTile; row += kTileRows) to[row * rows + first + x] = tile[x][row];
    __syncthreads();
  }
}

__global__ void staged_kernel(uint4* __restrict__ to, const uint4* __restrict__ from, std::size_t words) {
  __shared__ uint4 tile[kUnroll][kThreads];
  const std::size_t block = static_cast<std::size_t>(kUnroll) * kThreads;
  const int other = (static_cast<int>(threadIdx.x) + 32) % kThreads;  // another warp's
  for (std::size_t first = blockIdx.x * block; first < words; first += gridDim.x * block) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::size_t i = first + u * kThreads + threadIdx.x;
      if (i < words) tile[u][threadIdx.x] = from[i];
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::size_t i = first + u * kThreads + other;
      if (i < words) to[i] = tile[u][other];
    }
    __syncthreads();
  }
}

// A thread stores what it loaded itself, so that it waits for its own copies and for nobody.
__global__ void async_copy_kernel(uint4* __restrict__ to, const uint4* __restrict__ from, std::size_t words) {
  constexpr int kStages = 6;  // of 4 KiB: as many blocks as threads allow fit at once
  __shared__ uint4 ring[kStages][kThreads];
  const std::size_t step = threads_of_grid();
  const auto load = [&](std::size_t i, int stage) {
    if (i < words) __pipeline_memcpy_async(&ring[stage][threadIdx.x], from + i, sizeof(uint4));
    __pipeline_commit();  // an empty one counts too
  };
  std::size_t ahead = thread_of_grid();
  for (int stage = 0; stage < kStages - 1; ++stage, ahead += step) load(ahead, stage);
  int stage = 0;
  for (std::size_t i = thread_of_grid(); i < words; i += step, ahead += step) {
    __pipeline_wait_prior(kStages - 2);
    to[i] = ring[stage][threadIdx.x];
    load(ahead, (stage + kStages - 1) % kStages);
    stage = (stage + 1) % kStages;
  }
}

constexpr std::size_t kBulkBytes = 16384;
constexpr int kBulkStages = 4;

// One thread of each block has TMA copy everything.
__global__ void bulk_kernel(std::byte* to, const std::byte* from, std::size_t bytes) {
#ifdef REDLINE_HOPPER
  extern __shared__ __align__(128) std::byte stages[];
  __shared__ std::uint64_t arrived[kBulkStages];
  if (threadIdx.x != 0) return;
  for (std::uint64_t& barrier : arrived) hopper::barrier_init(&barrier, 1);
  hopper::fence_async();
  const std::size_t step = gridDim.x * kBulkBytes;
  const auto size_at = [&](std::size_t at) { return static_cast<unsigned>(min(kBulkBytes, bytes - at)); };
  const auto load = [&](std::size_t at, int stage) {
    if (at >= bytes) return;
    hopper::barrier_expect(&arrived[stage], size_at(at));
    hopper::load_bytes(stages + stage * kBulkBytes, from + at, size_at(at), &arrived[stage]);
  };
  std::size_t ahead = blockIdx.x * kBulkBytes;
  for (int stage = 0; stage < kBulkStages - 1; ++stage, ahead += step) load(ahead, stage);
  hopper::Cursor cursor;
  for (std::size_t at = blockIdx.x * kBulkBytes; at < bytes; at += step, ahead += step) {
    hopper::barrier_wait(&arrived[cursor.stage], cursor.parity);
    hopper::store_bytes(to + at, stages + cursor.stage * kBulkBytes, size_at(at));
    hopper::commit_stores();
    hopper::wait_stores_read<1>();  // the store before, whose place the next load takes
    load(ahead, (cursor.stage + kBulkStages - 1) % kBulkStages);
    cursor.next(kBulkStages);
  }
  hopper::wait_stores();
#endif
}

// One addition per block: many to one address would take time.
__device__ void add_up(unsigned long long value, unsigned long long* sum) {
  value = block_reduce<kThreads>(value, 0ULL, [](auto a, auto b) { return a + b; });
  if (threadIdx.x == 0) atomicAdd(sum, value);
}

__global__ void read_kernel(const uint4* from, std::size_t words, unsigned long long* sum) {
  unsigned long long own = 0;
  for_words(words, InOrder<uint4>{from}, [&](std::size_t, const uint4& v) {
    own += static_cast<unsigned long long>(v.x) + v.y + (static_cast<unsigned long long>(v.z) + v.w);
  });
  add_up(own, sum);
}

__global__ void write_kernel(uint4* to, std::size_t words) {
  const uint4 value = {kWritten, kWritten, kWritten, kWritten};
  for (std::size_t i = thread_of_grid(); i < words; i += threads_of_grid()) to[i] = value;
}

__global__ void fill_kernel(std::uint32_t* to, std::size_t words) {
  for (std::size_t i = thread_of_grid(); i < words; i += threads_of_grid()) to[i] = memory_word(i);
}

__global__ void count_wrong_kernel(Access access, const std::uint32_t* words, std::size_t count,
                                   Scatter scatter, unsigned long long* wrong) {
  unsigned long long own = 0;
  for (std::size_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    std::uint32_t expected = memory_word(i);
    if (access.kind == AccessKind::strided || access.kind == AccessKind::strided_staged)
      expected = memory_word(strided(i, count, access.stride));
    if (access.kind == AccessKind::random) expected = memory_word(scatter(i));
    if (access.kind == AccessKind::write) expected = kWritten;
    own += words[i] == expected ? 0 : 1;
  }
  add_up(own, wrong);
}

// Enough blocks for `items` threads, and no more than run at once.
int blocks_of(std::size_t items) {
  constexpr int kBlocksEach = 2048 / kThreads;
  const std::int64_t wanted = divide_up(static_cast<std::int64_t>(items), kThreads);
  return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, multiprocessors() * kBlocksEach));
}

template <typename Word>
void launch_copy(void* to, const void* from, std::size_t bytes, int most_blocks, cudaStream_t stream) {
  const std::size_t words = bytes / sizeof(Word);
  const InOrder<Word> source{static_cast<const Word*>(from)};
  copy_kernel<<<std::min(most_blocks, blocks_of(words)), kThreads, 0, stream>>>(static_cast<Word*>(to), words,
                                                                                source);
}

void launch_bulk(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  constexpr int kShared = static_cast<int>(kBulkBytes) * kBulkStages, kBlocksEach = 3;
  cudaFuncSetAttribute(bulk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  const auto pieces = static_cast<int>(std::min<std::size_t>((bytes + kBulkBytes - 1) / kBulkBytes, 1 << 20));
  bulk_kernel<<<std::min(pieces, multiprocessors() * kBlocksEach), 32, kShared, stream>>>(
      static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
}

}  // namespace

void copy_bytes(void* to, const void* from, std::size_t bytes, int blocks, cudaStream_t stream) {
  const auto aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % sizeof(uint4) == 0; };
  const std::size_t wide = aligned(to) && aligned(from) ? bytes / sizeof(uint4) * sizeof(uint4) : 0;
  if (wide > 0) launch_copy<uint4>(to, from, wide, blocks, stream);
  if (wide < bytes)
    launch_copy<std::uint8_t>(static_cast<std::byte*>(to) + wide, static_cast<const std::byte*>(from) + wide,
                              bytes - wide, blocks, stream);
}

void launch_access(const Access& access, void* to, const void* from, std::size_t bytes,
                   unsigned long long* sum, cudaStream_t stream) {
  constexpr int kAny = std::numeric_limits<int>::max();
  const std::size_t words = bytes / sizeof(std::uint32_t), wide = bytes / sizeof(uint4);
  auto* to4 = static_cast<std::uint32_t*>(to);
  auto* to16 = static_cast<uint4*>(to);
  const auto* from4 = static_cast<const std::uint32_t*>(from);
  const auto* from16 = static_cast<const uint4*>(from);
  const auto run = [&](auto kernel, dim3 blocks, const auto&... arguments) {
    kernel<<<blocks, kThreads, 0, stream>>>(arguments...);
  };
  const auto copy = [&](dim3 blocks, std::size_t each, const auto& source) {
    copy_kernel<<<blocks, kThreads, 0, stream>>>(to4, each, source);
  };
  switch (access.kind) {
    case AccessKind::driver:
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
      return;
    case AccessKind::copy4:
      return launch_copy<std::uint32_t>(to, from, bytes, kAny, stream);
    case AccessKind::copy8:
      return launch_copy<uint2>(to, from, bytes, kAny, stream);
    case AccessKind::copy16:
      return launch_copy<uint4>(to, from, bytes, kAny, stream);
    case AccessKind::strided:
      return copy(dim3(std::max(1, blocks_of(words) / access.stride), access.stride), words / access.stride,
                  Strided{from4, access.stride});
    case AccessKind::strided_staged:
      return run(strided_staged_kernel, blocks_of(words / kUnroll), to4, from4, words);
    case AccessKind::random:
      return copy(blocks_of(words), words, Scattered{from4, Scatter(words)});
    case AccessKind::staged:
      return run(staged_kernel, blocks_of(wide / kUnroll), to16, from16, wide);
    case AccessKind::async_copy:
      return run(async_copy_kernel, blocks_of(wide), to16, from16, wide);
    case AccessKind::bulk:
      return launch_bulk(to, from, bytes, stream);
    case AccessKind::read:
      return run(read_kernel, blocks_of(wide), from16, wide, sum);
    case AccessKind::write:
      return run(write_kernel, blocks_of(wide), to16, wide);
  }
}

void fill_words(void* to, std::size_t bytes, cudaStream_t stream) {
  const std::size_t words = bytes / sizeof(std::uint32_t);
  fill_kernel<<<blocks_of(words), kThreads, 0, stream>>>(static_cast<std::uint32_t*>(to), words);
}

void count_wrong(const Access& access, const void* words, std::size_t bytes, unsigned long long* wrong,
                 cudaStream_t stream) {
  const std::size_t count = bytes / sizeof(std::uint32_t);
  count_wrong_kernel<<<blocks_of(count), kThreads, 0, stream>>>(
      access, static_cast<const std::uint32_t*>(words), count, Scatter(count), wrong);
}

}  // namespace redline::backend::cuda
