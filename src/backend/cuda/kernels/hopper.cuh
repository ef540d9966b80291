// Hopper's own instructions as functions: barriers in shared memory, bulk copies by TMA that complete them,
// and wgmma, the matrix product of a group of four warps. Only code inside REDLINE_HOPPER may use them.
// tiles.cuh builds on this.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backend/cuda/kernels/vec.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define REDLINE_HOPPER 1

namespace redline::backend::cuda::hopper {

// A place in a ring of stages, and the parity of the barriers there.
struct Cursor {
  int stage = 0;
  unsigned parity = 0;
  REDLINE_DEVICE void next(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1U;
    }
  }
};

// Two neighbouring elements. NaN stays NaN. positive() returns a bit for each.
template <typename T>
struct Pair {
  static constexpr bool kHalf = __is_same(T, __half);
  using Two = std::conditional_t<kHalf, __half2, __nv_bfloat162>;
  Two v;
  static __device__ Pair of_bits(std::uint32_t bits) { return {reinterpret_cast<const Two&>(bits)}; }
  __device__ std::uint32_t bits() const { return reinterpret_cast<const std::uint32_t&>(v); }
  __device__ float2 floats() const {
    if constexpr (kHalf)
      return __half22float2(v);
    else
      return floats_of_bf16(bits());
  }
  __device__ std::uint32_t positive() const {
    const std::uint32_t masks = __hgt2_mask(v, Two{});
    return (masks & 1U) | (masks >> 30 & 2U);
  }
  static __device__ Pair of(float x, float y) {
    if constexpr (kHalf)
      return {__floats2half2_rn(x, y)};
    else
      return {__floats2bfloat162_rn(x, y)};
  }
  static __device__ Pair relu_of(float x, float y) {
    std::uint32_t bits;
    if constexpr (kHalf)
      asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(y), "f"(x));
    else
      asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(y), "f"(x));
    return of_bits(bits);
  }
};

REDLINE_DEVICE std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// The first address in dynamic shared memory at which a swizzled tile may begin. Launches request 1 KiB more
// than they use.
REDLINE_DEVICE std::byte* aligned(std::byte* dynamic) {
  return dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
}

REDLINE_DEVICE void barrier_init(std::uint64_t* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}
REDLINE_DEVICE void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives, and adds to the bytes of bulk copies that the phase waits for.
REDLINE_DEVICE void barrier_expect(std::uint64_t* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
REDLINE_DEVICE void barrier_wait(std::uint64_t* barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@done bra.uni ready;\n"
      "bra.uni again;\n"
      "ready:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Makes barriers and ordinary writes to shared memory visible to TMA and wgmma.
REDLINE_DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Makes initialised barriers visible to the other threads and to TMA.
REDLINE_DEVICE void publish_barriers() {
  fence_async();
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Waits for `threads` threads that name the same barrier (1 to 15).
REDLINE_DEVICE void sync_group(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// Arrives as one of those threads, without waiting.
REDLINE_DEVICE void arrive_group(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

REDLINE_DEVICE void load_tile(void* to, const CUtensorMap& map, int column, int row, std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}
// Contiguous bytes; addresses and size are multiples of sixteen.
REDLINE_DEVICE void load_bytes(void* to, const void* from, unsigned bytes, std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
REDLINE_DEVICE void store_bytes(void* to, const void* from, unsigned bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
      "r"(shared_address(from)), "r"(bytes)
      : "memory");
}
// A box of a tensor of four dimensions, the fastest first. Outside the tensor zeros are loaded, and nothing
// is stored.
REDLINE_DEVICE void load_box(void* to, const CUtensorMap& map, int x, int y, int z, int w,
                             std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
      "%5}], [%6];" ::"r"(shared_address(to)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(barrier))
      : "memory");
}
// Loads a box into the L2 cache only.
REDLINE_DEVICE void prefetch_box(const CUtensorMap& map, int x, int y, int z, int w) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(&map), "r"(x),
               "r"(y), "r"(z), "r"(w)
               : "memory");
}
REDLINE_DEVICE void store_box(const CUtensorMap& map, int x, int y, int z, int w, const void* from) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(&map),
      "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(from))
      : "memory");
}
REDLINE_DEVICE void store_tile(const CUtensorMap& map, int column, int row, const void* from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
               "r"(column), "r"(row), "r"(shared_address(from))
               : "memory");
}
REDLINE_DEVICE void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until at most kOpen groups of this thread's stores still read shared memory.
template <int kOpen>
REDLINE_DEVICE void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kOpen) : "memory");
}
REDLINE_DEVICE void wait_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// The offset of a chunk of sixteen bytes in a row of 128, in a tile that TMA swizzled.
REDLINE_DEVICE int swizzled(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

// The descriptor of a matrix in shared memory that wgmma reads, in rows of 128 bytes swizzled by TMA. Strides
// in bytes: `leading` between boxes of 64 columns (transposed only), `stride` between groups of eight rows.
REDLINE_DEVICE std::uint64_t descriptor(const void* at, unsigned leading, unsigned stride) {
  const auto field = [](unsigned bytes) { return static_cast<std::uint64_t>((bytes & 0x3FFFFU) >> 4); };
  return field(shared_address(at)) | field(leading) << 16 | field(stride) << 32 | std::uint64_t{1} << 62;
}

// The same without swizzle: `leading` and `stride` are between groups of eight rows of sixteen bytes, along K
// and across it. Groups may overlap.
REDLINE_DEVICE std::uint64_t plain_descriptor(const void* at, unsigned leading, unsigned stride) {
  return descriptor(at, leading, stride) & ~(std::uint64_t{3} << 62);
}

// Move four matrices of 8 x 8 elements between the registers of a warp, laid out as for wgmma, and rows of
// sixteen bytes in shared memory, transposed or not. Lane 8m + i passes the address of row i of matrix m.
REDLINE_DEVICE void stmatrix_transposed(void* row, const std::uint32_t (&from)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
      "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
      : "memory");
}
REDLINE_DEVICE void stmatrix(void* row, const std::uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}
REDLINE_DEVICE void ldmatrix_transposed(std::uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
REDLINE_DEVICE void ldmatrix(std::uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// How many registers the threads of this group of four warps may use from here on, fewer or more than at the
// launch: one group takes what another gave.
template <int kCount>
REDLINE_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
REDLINE_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

REDLINE_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
REDLINE_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kOpen>
REDLINE_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kOpen) : "memory");
}

// sum[64 x n] += a[64 x 16] * b[16 x n] for n = 2 * kSums, spread over the 128 threads of a warp group: a
// thread holds, for each j below n / 8, the columns 8j + 2 * (lane % 4) + {0, 1} of rows lane / 4 and
// lane / 4 + 8 of its warp's sixteen. `add` false starts from zero.
// PTX names every register, so the sums of each width that is used are written out, as operands and by name,
// and the operands after them are numbered.
#define REDLINE_SUMS4(I) "+f"(d[(I)]), "+f"(d[(I) + 1]), "+f"(d[(I) + 2]), "+f"(d[(I) + 3])
#define REDLINE_SUMS8(I) REDLINE_SUMS4(I), REDLINE_SUMS4((I) + 4)
#define REDLINE_SUMS16(I) REDLINE_SUMS8(I), REDLINE_SUMS8((I) + 8)
#define REDLINE_SUMS32(I) REDLINE_SUMS16(I), REDLINE_SUMS16((I) + 16)
#define REDLINE_SUMS56(I) REDLINE_SUMS32(I), REDLINE_SUMS16((I) + 32), REDLINE_SUMS8((I) + 48)
#define REDLINE_SUMS64(I) REDLINE_SUMS32(I), REDLINE_SUMS32((I) + 32)
#define REDLINE_SUMS96(I) REDLINE_SUMS64(I), REDLINE_SUMS32((I) + 64)
#define REDLINE_SUMS104(I) REDLINE_SUMS96(I), REDLINE_SUMS8((I) + 96)
#define REDLINE_SUMS108(I) REDLINE_SUMS104(I), REDLINE_SUMS4((I) + 104)
#define REDLINE_SUMS116(I) REDLINE_SUMS108(I), REDLINE_SUMS8((I) + 108)
#define REDLINE_NAMES16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define REDLINE_NAMES32 \
  REDLINE_NAMES16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REDLINE_NAMES56                                                                               \
  REDLINE_NAMES32                                                                                     \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, " \
  "%51, %52, %53, %54, %55"
#define REDLINE_NAMES64 REDLINE_NAMES56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define REDLINE_NAMES96                                                                               \
  REDLINE_NAMES64                                                                                     \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, " \
  "%83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define REDLINE_NAMES104 REDLINE_NAMES96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define REDLINE_NAMES108 REDLINE_NAMES104 ", %104, %105, %106, %107"
#define REDLINE_NAMES116 REDLINE_NAMES108 ", %108, %109, %110, %111, %112, %113, %114, %115"
#define REDLINE_WGMMA_OF(TYPE, SUMS, N, A, B, ADD, TRANSPOSES, ...)                                     \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " ADD                                              \
               ", 0;\n"                                                                                 \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" REDLINE_NAMES##SUMS \
               "}, " A ", " B ", add, 1, 1, " TRANSPOSES ";\n}\n"                                       \
               : REDLINE_SUMS##SUMS(0)                                                                  \
               : __VA_ARGS__)
// The product of this width, for both types, of which T is one.
#define REDLINE_WGMMA(SUMS, ...)                         \
  if constexpr (kSums == SUMS && __is_same(T, __half)) { \
    REDLINE_WGMMA_OF("f16", SUMS, __VA_ARGS__);          \
  } else if constexpr (kSums == SUMS) {                  \
    REDLINE_WGMMA_OF("bf16", SUMS, __VA_ARGS__);         \
  }
#define REDLINE_FROM_SHARED \
  "l"(a), "l"(b), "r"(add ? 1 : 0), "n"(kTransposedA ? 1 : 0), "n"(kTransposedB ? 1 : 0)
#define REDLINE_FROM_REGISTERS \
  "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add ? 1 : 0), "n"(kTransposed ? 1 : 0)

// a and b are in shared memory, each in rows along K or, transposed, in rows across it.
template <typename T, bool kTransposedA, bool kTransposedB, int kSums>
REDLINE_DEVICE void wgmma(float (&d)[kSums], std::uint64_t a, std::uint64_t b, bool add) {
  static_assert(kSums == 32 || kSums == 64 || kSums == 96 || kSums == 104 || kSums == 108 || kSums == 116,
                "wgmma of this width is not used yet");
  REDLINE_WGMMA(32, 64, "%32", "%33", "%34", "%35, %36", REDLINE_FROM_SHARED)
  REDLINE_WGMMA(64, 128, "%64", "%65", "%66", "%67, %68", REDLINE_FROM_SHARED)
  REDLINE_WGMMA(96, 192, "%96", "%97", "%98", "%99, %100", REDLINE_FROM_SHARED)
  REDLINE_WGMMA(104, 208, "%104", "%105", "%106", "%107, %108", REDLINE_FROM_SHARED)
  REDLINE_WGMMA(108, 216, "%108", "%109", "%110", "%111, %112", REDLINE_FROM_SHARED)
  REDLINE_WGMMA(116, 232, "%116", "%117", "%118", "%119, %120", REDLINE_FROM_SHARED)
}

// The same with a in registers, and b transposed or not: a thread holds the columns 2 * (lane % 4) + {0, 1}
// of rows lane / 4 and lane / 4 + 8 of its warp's sixteen, then those eight columns further right.
template <typename T, bool kTransposed, int kSums>
REDLINE_DEVICE void wgmma(float (&d)[kSums], const std::uint32_t (&a)[4], std::uint64_t b, bool add) {
  static_assert(kSums == 16 || kSums == 32 || kSums == 56 || kSums == 64,
                "wgmma of this width is not used yet");
  REDLINE_WGMMA(16, 32, "{%16, %17, %18, %19}", "%20", "%21", "%22", REDLINE_FROM_REGISTERS)
  REDLINE_WGMMA(32, 64, "{%32, %33, %34, %35}", "%36", "%37", "%38", REDLINE_FROM_REGISTERS)
  REDLINE_WGMMA(56, 112, "{%56, %57, %58, %59}", "%60", "%61", "%62", REDLINE_FROM_REGISTERS)
  REDLINE_WGMMA(64, 128, "{%64, %65, %66, %67}", "%68", "%69", "%70", REDLINE_FROM_REGISTERS)
}

// After wgmma_wait: keeps the compiler from moving reads of the sums before it.
template <int kSums>
REDLINE_DEVICE void settle(float (&d)[kSums]) {
#pragma unroll
  for (float& sum : d) asm volatile("" : "+f"(sum)::"memory");
}

}  // namespace redline::backend::cuda::hopper
#endif
