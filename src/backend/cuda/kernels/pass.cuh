// One pass over tensors of one shape, a vector at a time; a thread always has the same channels. `Work` says
// what happens to a vector:
//   Args, Vector, kInputs     its arguments, and the arrays that it reads: input(args, k)
//   is_settled(k)             whether the kernel before this one certainly does not write that input
//   Work(args, channel, channels, find)   computes the numbers of its channels; called by the whole block
//   operator()(args, in, at, valid)       handles one vector of every input; called by a warp together
#pragma once

#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {

// --- With ordinary loads ---

inline constexpr int kUnroll = 4;  // vectors that a thread has in flight

template <typename Work>
__global__ void __launch_bounds__(kThreads)
    walk_kernel(std::int64_t vectors, int row_vectors, typename Work::Args args) {
  using Vector = typename Work::Vector;
  begin_kernel();
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const Work work(args, static_cast<int>(first % row_vectors) * Vector::kSize, row_vectors * Vector::kSize,
                  Find::by_block);
  for (std::int64_t base = first; base - threadIdx.x % 32 < vectors; base += stride * kUnroll) {
    Vector in[kUnroll][Work::kInputs];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t at = base + u * stride;
      if (at >= vectors) break;
#pragma unroll
      for (int k = 0; k < Work::kInputs; ++k) in[u][k] = static_cast<const Vector*>(Work::input(args, k))[at];
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t at = base + u * stride;
      work(args, in[u], at, at < vectors);
    }
  }
}

// --- With TMA on Hopper, which fills a ring of tiles ahead of the threads ---
// More is in flight than registers have room for; and only as many blocks start as run concurrently, so each
// computes the numbers of its channels once. Pays off with several inputs.

inline constexpr int kRingDeep = 4;  // vectors of a thread in a tile
inline constexpr int kRingTile = kRingDeep * kThreads;
inline constexpr int kRingStages = 3;
inline constexpr int kRingBlocksEach = 2;  // on a multiprocessor

template <typename Work>
__global__ void __launch_bounds__(kThreads, kRingBlocksEach)
    ring_kernel(std::int64_t vectors, int row_vectors, typename Work::Args args) {
#ifdef REDLINE_HOPPER
  using Vector = typename Work::Vector;
  using Tile = Vector[Work::kInputs][kRingTile];
  extern __shared__ __align__(128) std::byte memory[];
  auto* ring = reinterpret_cast<Tile*>(memory);
  __shared__ std::uint64_t full[kRingStages];
  const int tiles = static_cast<int>((vectors + kRingTile - 1) / kRingTile);
  const auto first_of = [](int tile) { return std::int64_t{tile} * kRingTile; };
  // Loads the inputs k of a tile with wanted(k). `begins`: first says how many bytes the tile waits for.
  const auto fetch = [&](int tile, int stage, bool begins, const auto& wanted) {
    if (tile >= tiles) return;
    const std::int64_t left = vectors - first_of(tile);
    const auto bytes = static_cast<unsigned>((left < kRingTile ? left : kRingTile) * sizeof(Vector));
    if (begins) hopper::barrier_expect(&full[stage], Work::kInputs * bytes);
    for (int k = 0; k < Work::kInputs; ++k) {
      const auto* from = static_cast<const Vector*>(Work::input(args, k)) + first_of(tile);
      if (wanted(k)) hopper::load_bytes(ring[stage][k], from, bytes, &full[stage]);
    }
  };
  const auto fetch_first = [&](bool begins, const auto& wanted) {
    if (threadIdx.x != 0) return;
    for (int stage = 0; stage < kRingStages; ++stage)
      fetch(static_cast<int>(blockIdx.x + stage * gridDim.x), stage, begins, wanted);
  };
  if (threadIdx.x == 0) {
    for (std::uint64_t& barrier : full) hopper::barrier_init(&barrier, 1);
    hopper::fence_async();
  }
  fetch_first(true, [](int k) { return Work::is_settled(k); });
  begin_kernel();
  fetch_first(false, [](int k) { return !Work::is_settled(k); });
  const Work work(args, static_cast<int>(threadIdx.x) % row_vectors * Vector::kSize,
                  row_vectors * Vector::kSize, Find::by_thread);
  __syncthreads();
  hopper::Cursor at_ring;
  for (auto tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    hopper::barrier_wait(&full[at_ring.stage], at_ring.parity);
    Vector in[kRingDeep][Work::kInputs];
#pragma unroll
    for (int u = 0; u < kRingDeep; ++u) {
#pragma unroll
      for (int k = 0; k < Work::kInputs; ++k) in[u][k] = ring[at_ring.stage][k][u * kThreads + threadIdx.x];
    }
    hopper::fence_async();  // or TMA may overtake these loads
    __syncthreads();
    const int next = tile + kRingStages * static_cast<int>(gridDim.x);
    if (threadIdx.x == 0) fetch(next, at_ring.stage, true, [](int) { return true; });
#pragma unroll
    for (int u = 0; u < kRingDeep; ++u) {
      const std::int64_t at = first_of(tile) + u * kThreads + threadIdx.x;
      work(args, in[u], at, at < vectors);
    }
    at_ring.next(kRingStages);
  }
#endif
}

template <typename Work>
void pass(const Matrix& m, const typename Work::Args& args, cudaStream_t stream) {
  using Vector = typename Work::Vector;
  const int row_vectors = m.channels / Vector::kSize;
  const std::int64_t vectors = m.rows * row_vectors;
  if constexpr (sizeof(Vector) == 16 && Work::kInputs > 1) {
    if (kThreads % row_vectors == 0 && has_hopper_kernels()) {
      constexpr std::size_t kBytes = sizeof(Vector) * Work::kInputs * kRingTile * kRingStages;
      const std::int64_t tiles = divide_up(vectors, kRingTile), most = multiprocessors() * kRingBlocksEach;
      cudaFuncSetAttribute(ring_kernel<Work>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(kBytes));
      launch(ring_kernel<Work>,
             {static_cast<unsigned>(tiles < most ? tiles : most), kThreads, kBytes, is_small(vectors)},
             stream, vectors, row_vectors, args);
      return;
    }
  }
  launch(walk_kernel<Work>,
         {static_cast<unsigned>(grid_for(vectors, row_vectors, kUnroll)), kThreads, 0, is_small(vectors)},
         stream, vectors, row_vectors, args);
}

}  // namespace redline::backend::cuda
