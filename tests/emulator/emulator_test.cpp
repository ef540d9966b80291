// The emulator itself: what kernels rely on, and what it must find.
#include <array>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/kernels/hopper.cuh"
#include "base/error.h"
#include "device.h"

extern "C" CUresult redline_emulator_encode_tiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                                  const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                                  const cuuint32_t*, CUtensorMapInterleave,
                                                  CUtensorMapSwizzle, CUtensorMapL2promotion,
                                                  CUtensorMapFloatOOBfill);

namespace redline::emulator {
namespace {

namespace hopper = backend::cuda::hopper;

void run(unsigned threads, const std::function<void()>& thread) {
  run_grid({dim3(2), dim3(threads)}, thread);
}

// What each thread of the last block finds where the opposite thread wrote.
std::vector<unsigned> exchanged(bool with_barrier) {
  constexpr unsigned kThreads = 96;
  std::vector<unsigned> shared(kThreads), found(kThreads);
  run(kThreads, [&] {
    if (threadIdx.x == 0) shared.assign(kThreads, 0);
    __syncthreads();
    shared[threadIdx.x] = threadIdx.x + 1;
    if (with_barrier) __syncthreads();
    found[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
  });
  return found;
}

TEST(Emulator, ABarrierMakesWritesVisibleAndAMissingOneIsSeen) {
  std::vector<unsigned> opposite(96);
  std::iota(opposite.rbegin(), opposite.rend(), 1U);
  EXPECT_EQ(exchanged(true), opposite);
  EXPECT_NE(exchanged(false), opposite);
}

TEST(Emulator, ThreadsThatEndedAreNotWaitedFor) {
  int arrived = 0;
  run(64, [&] {
    if (threadIdx.x >= 40) return;
    __syncthreads();
    ++arrived;
  });
  EXPECT_EQ(arrived, 2 * 40);
}

// A warp reads or writes shared memory by an instruction of its own, and TMA or wgmma comes next.
template <typename Own, typename Next>
void touch_and_go_on(bool with_fence, const Own& own, const Next& next) {
  run(kWarpGroup, [&] {
    std::byte* row = dynamic_shared() + threadIdx.x * 16;
    static std::uint64_t barrier;
    if (threadIdx.x == 0) hopper::barrier_init(&barrier, 1);
    __syncthreads();
    own(row);
    if (with_fence) hopper::fence_async();
    __syncthreads();
    next(&barrier);
  });
}
void refill(std::uint64_t* barrier) {
  alignas(16) static std::array<std::byte, 16 * kWarpGroup> memory;
  if (threadIdx.x != 0) return;
  hopper::barrier_expect(barrier, memory.size());
  hopper::load_bytes(dynamic_shared(), memory.data(), memory.size(), barrier);
}
void multiply(std::uint64_t* /*barrier*/) {
  float d[32];
  const std::uint64_t operand = hopper::descriptor(dynamic_shared(), 16, 1024);
  hopper::wgmma<__half, false, false>(d, operand, operand, false);
}

TEST(Emulator, AMissingFenceBetweenThreadsAndTmaOrWgmmaIsSeen) {
  const auto load = [](std::byte* row) {
    volatile std::byte first = *row;
    static_cast<void>(first);
  };
  const auto store = [](std::byte* row) { *row = std::byte{1}; };
  const auto matrix_load = [](std::byte* row) {
    std::uint32_t matrices[4];
    hopper::ldmatrix(matrices, row);
  };
  const auto matrix_store = [](std::byte* row) { hopper::stmatrix(row, {0, 0, 0, 0}); };
  const auto try_all = [&](const auto& own, bool reads) {
    EXPECT_NO_THROW(touch_and_go_on(true, own, refill));
    EXPECT_THROW(touch_and_go_on(false, own, refill), InternalError);
    EXPECT_NO_THROW(touch_and_go_on(true, own, multiply));
    if (reads)  // two readers
      EXPECT_NO_THROW(touch_and_go_on(false, own, multiply));
    else
      EXPECT_THROW(touch_and_go_on(false, own, multiply), InternalError);
  };
  try_all(load, true);
  try_all(store, false);
  try_all(matrix_load, true);
  try_all(matrix_store, false);
}

TEST(Emulator, AHangIsExplained) {
  try {
    run(64, [] {
      if (threadIdx.x < 32) hopper::sync_group(1, 64);
    });
    FAIL() << "it does not hang";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("at a named barrier"), std::string::npos) << error.what();
  }
}

TEST(Emulator, LanesReadEachOther) {
  std::vector<int> by_xor(32), by_lane(32), down(32);
  std::vector<unsigned> ballots(32);
  run(32, [&] {
    const int own = lane();
    by_xor[threadIdx.x] = __shfl_xor_sync(~0U, own, 5);
    by_lane[threadIdx.x] = __shfl_sync(~0U, own, 7);
    down[threadIdx.x] = __shfl_down_sync(~0U, own, 4);
    ballots[threadIdx.x] = __ballot_sync(~0U, own % 2 == 1);
  });
  for (int i = 0; i < 32; ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_EQ(by_xor[at], i ^ 5);
    EXPECT_EQ(by_lane[at], 7);
    EXPECT_EQ(down[at], i + 4 < 32 ? i + 4 : i);
    EXPECT_EQ(ballots[at], 0xAAAAAAAAU);
  }
}

// A matrix of halves as TMA sees it, in boxes of 64 columns.
CUtensorMap describe(std::vector<__half>& values, int rows, int columns, int box_rows) {
  CUtensorMap map{};
  const std::array<cuuint64_t, 2> size{static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t stride = size[0] * sizeof(__half);
  const std::array<cuuint32_t, 2> box{64, static_cast<cuuint32_t>(box_rows)}, steps{1, 1};
  redline_emulator_encode_tiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, values.data(), size.data(), &stride,
                                box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

std::vector<__half> numbers(int count, int from) {
  std::vector<__half> values;
  for (int i = 0; i < count; ++i)
    values.push_back(__float2half_rn(static_cast<float>((i * 7 + from) % 15 - 7)));
  return values;
}

TEST(Emulator, TmaSwizzlesZeroFillsAndStoresWhatLiesInside) {
  constexpr int kRows = 11, kColumns = 72, kBoxRows = 16;  // neither fills its last box
  std::vector<__half> from = numbers(kRows * kColumns, 3), to(from.size());
  const CUtensorMap source = describe(from, kRows, kColumns, kBoxRows),
                    target = describe(to, kRows, kColumns, kBoxRows);
  run(32, [&] {
    static std::uint64_t full;
    if (threadIdx.x == 0) hopper::barrier_init(&full, 1);
    __syncwarp();
    for (int column = 0; column < kColumns; column += 64) {
      if (threadIdx.x == 0) {
        hopper::barrier_expect(&full, kBoxRows * 128);
        hopper::load_tile(dynamic_shared(), source, column, 0, &full);
      }
      hopper::barrier_wait(&full, column == 0 ? 0 : 1);
      __half last;
      std::memcpy(&last, dynamic_shared() + hopper::swizzled(kBoxRows - 1, 0), sizeof last);
      EXPECT_EQ(__half2float(last), 0.0F);
      hopper::fence_async();
      if (threadIdx.x == 0) hopper::store_tile(target, column, 0, dynamic_shared());
      __syncwarp();
    }
  });
  for (std::size_t i = 0; i < from.size(); ++i) ASSERT_EQ(__half2float(to[i]), __half2float(from[i])) << i;
}

TEST(Emulator, WarpGroupsMultiply) {
  constexpr int kM = 64, kN = 64, kK = 64;
  std::vector<__half> a = numbers(kM * kK, 0), b = numbers(kN * kK, 5);
  const CUtensorMap of_a = describe(a, kM, kK, kM), of_b = describe(b, kN, kK, kN);
  std::vector<float> out(kM * kN);
  run(kWarpGroup, [&] {
    static std::uint64_t full;
    std::byte *tile_a = dynamic_shared(), *tile_b = tile_a + kM * 128;
    if (threadIdx.x == 0) {
      hopper::barrier_init(&full, 1);
      hopper::barrier_expect(&full, 2 * kM * 128);
      hopper::load_tile(tile_a, of_a, 0, 0, &full);
      hopper::load_tile(tile_b, of_b, 0, 0, &full);
    }
    __syncthreads();
    hopper::barrier_wait(&full, 0);
    float d[kN / 2];
    for (int step = 0; step < kK / 16; ++step)
      hopper::wgmma<__half, false, false>(d, hopper::descriptor(tile_a + 32 * step, 16, 1024),
                                          hopper::descriptor(tile_b + 32 * step, 16, 1024), step > 0);
    const int row = static_cast<int>(threadIdx.x) / 32 * 16 + lane() / 4;
    for (int i = 0; i < kN / 2; ++i)
      out[static_cast<std::size_t>((row + i / 2 % 2 * 8) * kN + i / 4 * 8 + lane() % 4 * 2 + i % 2)] = d[i];
  });
  for (int m = 0; m < kM; ++m) {
    for (int n = 0; n < kN; ++n) {
      float expected = 0.0F;
      for (int k = 0; k < kK; ++k)
        expected += __half2float(a[static_cast<std::size_t>(m * kK + k)]) *
                    __half2float(b[static_cast<std::size_t>(n * kK + k)]);
      ASSERT_EQ(out[static_cast<std::size_t>(m * kN + n)], expected) << m << ", " << n;
    }
  }
}

}  // namespace
}  // namespace redline::emulator
