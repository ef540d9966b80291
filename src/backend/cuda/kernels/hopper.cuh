// Hopper's own instructions, named: barriers in shared memory that bulk copies complete, tiles moved by the
// copy engine, and matrix products by four warps together. Only code inside REDLINE_HOPPER may use them.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define REDLINE_HOPPER 1

namespace redline::backend::cuda::hopper {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void barrier_init(std::uint64_t* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}
__device__ __forceinline__ void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives, and says how many bytes of bulk copies the phase waits for besides.
__device__ __forceinline__ void barrier_expect(std::uint64_t* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_wait(std::uint64_t* barrier, unsigned parity) {
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

// Makes barriers and ordinary writes to shared memory visible to the copy engine and the matrix units.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Waits for `threads` threads that name the same barrier (1 to 15).
__device__ __forceinline__ void sync_group(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void load_tile(void* to, const CUtensorMap& map, int column, int row,
                                          std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}
__device__ __forceinline__ void store_tile(const CUtensorMap& map, int column, int row, const void* from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
               "r"(column), "r"(row), "r"(shared_address(from))
               : "memory");
}
__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until at most kOpen groups of this thread's stores still read shared memory.
template <int kOpen>
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kOpen) : "memory");
}
__device__ __forceinline__ void wait_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// A matrix in shared memory, in rows of 128 bytes swizzled by the copy engine. Strides in bytes: `leading`
// between blocks of 64 columns (only where columns run along the product's rows), `stride` between groups of
// eight rows.
__device__ __forceinline__ std::uint64_t matrix(const void* at, unsigned leading, unsigned stride) {
  const auto field = [](unsigned bytes) { return static_cast<std::uint64_t>((bytes & 0x3FFFFU) >> 4); };
  return field(shared_address(at)) | field(leading) << 16 | field(stride) << 32 | std::uint64_t{1} << 62;
}

__device__ __forceinline__ void matrix_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void matrix_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kOpen>
__device__ __forceinline__ void matrix_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kOpen) : "memory");
}

// sum[64 x 64] += a[64 x 16] * b[16 x 64], spread over the 128 threads of a warp group: a thread holds, for
// each j below 8, the columns 8j + 2 * (lane % 4) + {0, 1} of rows lane / 4 and lane / 4 + 8 of its warp's
// sixteen. `kTransposed`: b lies in rows of columns. `add` false starts from zero.
#define REDLINE_MULTIPLY(TYPE, TRANSPOSED)                                                                \
  asm volatile(                                                                                           \
      "{\n"                                                                                               \
      ".reg .pred add;\n"                                                                                 \
      "setp.ne.b32 add, %34, 0;\n"                                                                        \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE                                         \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
      "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, add, 1, 1, 0, " TRANSPOSED       \
      ";\n"                                                                                               \
      "}\n"                                                                                               \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),   \
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),          \
        "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),        \
        "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),        \
        "+f"(d[29]), "+f"(d[30]), "+f"(d[31])                                                             \
      : "l"(a), "l"(b), "r"(add ? 1 : 0))

template <typename T, bool kTransposed>
__device__ __forceinline__ void multiply(float (&d)[32], std::uint64_t a, std::uint64_t b, bool add) {
  if constexpr (sizeof(T) == 2 && kTransposed) {
    if constexpr (__is_same(T, __half)) {
      REDLINE_MULTIPLY("f16", "1");
    } else {
      REDLINE_MULTIPLY("bf16", "1");
    }
  } else {
    if constexpr (__is_same(T, __half)) {
      REDLINE_MULTIPLY("f16", "0");
    } else {
      REDLINE_MULTIPLY("bf16", "0");
    }
  }
}
#undef REDLINE_MULTIPLY

}  // namespace redline::backend::cuda::hopper
#endif
