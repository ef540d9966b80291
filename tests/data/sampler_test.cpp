#include "data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"

namespace redline::data {
namespace {

SamplerOptions options(std::int64_t samples, int batch, bool train, int rank = 0, int ranks = 1,
                       std::uint64_t seed = 5) {
  SamplerOptions o;
  o.samples = samples;
  o.batch_size = batch;
  o.train = train;
  o.rank = rank;
  o.ranks = ranks;
  o.seed = seed;
  return o;
}

// The global order as `ranks` ranks see it together, batch by batch.
std::vector<std::int64_t> global_order(std::int64_t samples, int global_batch, bool train, int ranks,
                                       std::int64_t epoch, std::uint64_t seed = 5) {
  std::vector<Sampler> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.emplace_back(options(samples, global_batch / ranks, train, rank, ranks, seed));
    all.back().start_epoch(epoch);
  }
  std::vector<std::int64_t> order;
  for (std::int64_t batch = 0; batch < all[0].batches_per_epoch(); ++batch)
    for (const Sampler& sampler : all)
      for (int row = 0; row < global_batch / ranks; ++row) order.push_back(sampler.sample(batch, row));
  return order;
}

TEST(Sampler, AnyNumberOfRanksSeesTheSameOrder) {
  const std::vector<std::int64_t> one = global_order(1003, 24, true, 1, 3);
  for (const int ranks : {2, 3, 4, 8, 24}) EXPECT_EQ(global_order(1003, 24, true, ranks, 3), one) << ranks;
}

TEST(Sampler, TrainingTakesNoSampleTwiceAndLeavesOutOnlyTheShortBatch) {
  const std::vector<std::int64_t> order = global_order(1003, 24, true, 4, 0);
  EXPECT_EQ(order.size(), 1003u / 24 * 24);
  const std::set<std::int64_t> distinct(order.begin(), order.end());
  EXPECT_EQ(distinct.size(), order.size());
  EXPECT_GE(*distinct.begin(), 0);
  EXPECT_LT(*distinct.rbegin(), 1003);
}

TEST(Sampler, EvaluationSeesEachSampleOnce) {
  for (const int ranks : {1, 2, 4}) {
    std::vector<std::int64_t> order = global_order(1003, 24, false, ranks, 0);
    EXPECT_EQ(std::count(order.begin(), order.end(), -1), 24 * 42 - 1003);
    std::erase(order, -1);
    std::vector<std::int64_t> expected(1003);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(order, expected);
  }
}

TEST(Sampler, EpochAndSeedChangeTheOrderAndRepeatIt) {
  const std::vector<std::int64_t> first = global_order(500, 10, true, 1, 1);
  EXPECT_EQ(global_order(500, 10, true, 1, 1), first);
  EXPECT_NE(global_order(500, 10, true, 1, 2), first);
  EXPECT_NE(global_order(500, 10, true, 1, 1, 6), first);
}

// The order is part of a recorded run: it must not change between versions.
TEST(Sampler, TheOrderIsFixed) {
  const std::vector<std::int64_t> order = global_order(8, 8, true, 1, 0, 0);
  EXPECT_EQ(order, (std::vector<std::int64_t>{1, 7, 2, 6, 0, 5, 3, 4}));
}

TEST(Sampler, TooFewSamplesForABatchIsAUsageError) {
  EXPECT_THROW(Sampler(options(10, 6, true, 0, 2)), UsageError);
  EXPECT_NO_THROW(Sampler(options(12, 6, true, 0, 2)));
  EXPECT_EQ(Sampler(options(1, 6, false, 1, 2)).sample(0, 0), -1);
}

}  // namespace
}  // namespace redline::data
