#include "data/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "base/error.h"

namespace redline::data {
namespace {

TEST(ParallelFor, RunsEveryItemOnce) {
  for (const int threads : {1, 2, 7}) {
    std::vector<std::atomic<int>> runs(1000);
    parallel_for(1000, threads, [&](std::int64_t item, int worker) {
      EXPECT_LT(worker, threads);
      ++runs[static_cast<std::size_t>(item)];
    });
    for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
  }
  parallel_for(0, 4, [](std::int64_t, int) { FAIL(); });
}

TEST(ParallelFor, ThrowsTheFirstFailureAndStops) {
  std::atomic<int> runs{0};
  EXPECT_THROW(parallel_for(1'000'000, 3,
                            [&](std::int64_t item, int) {
                              ++runs;
                              if (item == 10) throw DataError("ten");
                            }),
               DataError);
  EXPECT_LT(runs, 1'000'000);
}

TEST(ParallelFor, StopsWhenProgressSaysSo) {
  std::atomic<int> runs{0};
  const Progress progress = [](std::int64_t done, std::int64_t total) {
    EXPECT_EQ(total, 1'000'000);
    return done < 50;
  };
  EXPECT_THROW(parallel_for(
                   1'000'000, 3, [&](std::int64_t, int) { ++runs; }, progress),
               Stopped);
  EXPECT_LT(runs, 1'000'000);
}

}  // namespace
}  // namespace redline::data
