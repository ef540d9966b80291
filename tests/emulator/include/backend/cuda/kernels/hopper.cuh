// Stands in for src/backend/cuda/kernels/hopper.cuh: the same functions, done by the CPU (tensor_core.h).
// Copies by TMA are complete as soon as they are asked for, and so are products: one of the orders that a GPU
// may have.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "tensor_core.h"

#define REDLINE_HOPPER 1

namespace redline::backend::cuda::hopper {

namespace emulator = redline::emulator;

struct Cursor {
  int stage = 0;
  unsigned parity = 0;
  void next(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1U;
    }
  }
};

// Two neighbouring elements.
template <typename T>
struct Pair {
  T first, second;
  static Pair of_bits(std::uint32_t bits) {
    Pair pair;
    std::memcpy(&pair, &bits, sizeof bits);
    return pair;
  }
  std::uint32_t bits() const {
    std::uint32_t bits = 0;
    std::memcpy(&bits, this, sizeof bits);
    return bits;
  }
  float2 floats() const { return {emulator::to_float(first), emulator::to_float(second)}; }
  std::uint32_t positive() const { return (floats().x > 0.0F ? 1U : 0U) | (floats().y > 0.0F ? 2U : 0U); }
  static Pair of(float x, float y) { return {emulator::rounded<T>(x), emulator::rounded<T>(y)}; }
  static Pair relu_of(float x, float y) { return of(x < 0.0F ? 0.0F : x, y < 0.0F ? 0.0F : y); }
};

inline std::uint32_t shared_address(const void* pointer) { return emulator::shared_address(pointer); }
inline std::byte* aligned(std::byte* dynamic) { return dynamic; }

inline void barrier_init(std::uint64_t* barrier, unsigned arrivals) {
  emulator::barrier_init(barrier, arrivals);
}
inline void barrier_arrive(std::uint64_t* barrier) { emulator::barrier_arrive(barrier); }
inline void barrier_expect(std::uint64_t* barrier, unsigned bytes) {
  emulator::barrier_expect(barrier, bytes);
  emulator::barrier_arrive(barrier);
}
inline void barrier_wait(std::uint64_t* barrier, unsigned parity) { emulator::barrier_wait(barrier, parity); }
inline void fence_async() { emulator::fence(); }
inline void publish_barriers() {}
inline void sync_group(int barrier, int threads) { emulator::sync_at(barrier, threads); }
inline void arrive_group(int barrier, int threads) { emulator::arrive_at(barrier, threads); }

inline void load_tile(void* to, const CUtensorMap& map, int column, int row, std::uint64_t* barrier) {
  emulator::load_box(to, map, {column, row}, barrier);
}
inline void load_box(void* to, const CUtensorMap& map, int x, int y, int z, int w, std::uint64_t* barrier) {
  emulator::load_box(to, map, {x, y, z, w}, barrier);
}
inline void prefetch_box(const CUtensorMap&, int, int, int, int) {}
inline void store_tile(const CUtensorMap& map, int column, int row, const void* from) {
  emulator::store_box(map, {column, row}, from);
}
inline void store_box(const CUtensorMap& map, int x, int y, int z, int w, const void* from) {
  emulator::store_box(map, {x, y, z, w}, from);
}
inline void load_bytes(void* to, const void* from, unsigned bytes, std::uint64_t* barrier) {
  emulator::check_bulk(to, from, bytes);
  emulator::check_fenced(to, bytes, emulator::Access::tma_writes);
  std::memcpy(to, from, bytes);
  emulator::barrier_complete(barrier, bytes);
}
inline void prefetch_bytes(const void* from, unsigned bytes) { emulator::check_bulk(from, from, bytes); }
inline void store_bytes(void* to, const void* from, unsigned bytes) {
  emulator::check_bulk(to, from, bytes);
  emulator::check_fenced(from, bytes, emulator::Access::tma_reads);
  std::memcpy(to, from, bytes);
}
inline void commit_stores() {}
template <int kOpen>
void wait_stores_read() {}
inline void wait_stores() {}

inline int swizzled(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

inline std::uint64_t descriptor(const void* at, unsigned leading, unsigned stride) {
  const auto field = [](unsigned bytes) { return static_cast<std::uint64_t>((bytes & 0x3FFFFU) >> 4); };
  return field(shared_address(at)) | field(leading) << 16 | field(stride) << 32 | std::uint64_t{1} << 62;
}
inline std::uint64_t plain_descriptor(const void* at, unsigned leading, unsigned stride) {
  return descriptor(at, leading, stride) & ~(std::uint64_t{3} << 62);
}

inline void stmatrix_transposed(void* row, const std::uint32_t (&from)[4]) {
  emulator::store_matrices(row, from, true);
}
inline void stmatrix(void* row, const std::uint32_t (&from)[4]) {
  emulator::store_matrices(row, from, false);
}
inline void ldmatrix_transposed(std::uint32_t (&to)[4], const void* row) {
  emulator::load_matrices(to, row, true);
}
inline void ldmatrix(std::uint32_t (&to)[4], const void* row) { emulator::load_matrices(to, row, false); }

template <int kCount>
void give_registers() {}
template <int kCount>
void take_registers() {}
inline void wgmma_fence() {}
inline void wgmma_commit() {}
template <int kOpen>
void wgmma_wait() {}

template <typename T, bool kTransposedA, bool kTransposedB, int kSums>
void wgmma(float (&d)[kSums], std::uint64_t a, std::uint64_t b, bool add) {
  emulator::multiply<T>(d, kSums, emulator::Matrix{a, kTransposedA}, {b, kTransposedB}, add);
}
template <typename T, bool kTransposed, int kSums>
void wgmma(float (&d)[kSums], const std::uint32_t (&a)[4], std::uint64_t b, bool add) {
  emulator::multiply<T>(d, kSums, a, {b, kTransposed}, add);
}
template <int kSums>
void settle(float (&)[kSums]) {}

}  // namespace redline::backend::cuda::hopper
