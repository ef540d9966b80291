#include "train/ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <random>

#include "tests/comm/run_ranks.h"
#include "train/fake_state.h"

namespace redline::train {
namespace {

using comm::ConnectOptions;

const std::vector<std::string> kNoFailures(3);

TEST(Ranks, AloneNothingIsExchanged) {
  Ranks ranks(nullptr);
  EXPECT_TRUE(ranks.alone());
  EXPECT_FALSE(ranks.any(false));
  EXPECT_TRUE(ranks.any(true));
  EXPECT_EQ(ranks.most(3), 3);
  EXPECT_EQ(ranks.speeds(), "");
}

TEST(Ranks, StepsAreAddedUpAndOneStopIsEverybodysStop) {
  const auto failures = comm::run_ranks(3, [](const ConnectOptions& options) {
    Ranks ranks(comm::connect(options));
    Ranks::Step step;
    step.sums.values = {1.0 + ranks.rank(), 2, 3, 4};
    step.stop = ranks.rank() == 2;
    step.work = 1.0 + ranks.rank();
    step.exposed = 0.3 * ranks.rank();
    ranks.exchange(step);
    EXPECT_EQ(step.sums, (graph::LossSums{{6, 6, 9, 12}}));
    EXPECT_TRUE(step.stop);
    EXPECT_EQ(step.slowest, 2);
    EXPECT_EQ(step.most_work, 3);
    EXPECT_NEAR(step.exposed, 0.3, 1e-12);
    EXPECT_EQ(ranks.most(10 - ranks.rank()), 10);
    EXPECT_FALSE(ranks.any(false));
  });
  EXPECT_EQ(failures, kNoFailures);
}

TEST(Ranks, ASlowRankIsNamedOnce) {
  const auto failures = comm::run_ranks(3, [](const ConnectOptions& options) {
    Ranks ranks(comm::connect(options));
    std::vector<std::string> named;
    for (int i = 0; i < 150; ++i) {
      Ranks::Step step;
      step.work = ranks.rank() == 1 ? 0.13 : 0.1;
      ranks.exchange(step);
      if (const auto slow = ranks.straggler()) named.push_back(*slow);
    }
    ASSERT_EQ(named.size(), 1U);
    EXPECT_TRUE(named[0].starts_with("rank 1 (")) << named[0];
    EXPECT_NE(named[0].find("0.13 s, 30% more than the others' 0.1 s"), std::string::npos) << named[0];
  });
  EXPECT_EQ(failures, kNoFailures);
}

// Ranks that all differ, and one that had a long step: none of them is slow.
TEST(Ranks, NoiseMakesNobodySlow) {
  const auto failures = comm::run_ranks(6, [](const ConnectOptions& options) {
    Ranks ranks(comm::connect(options));
    for (int i = 0; i < 100; ++i) {
      Ranks::Step step;
      step.work = 0.1 + 0.012 * ranks.rank();  // 0.16 of the last is 28% more than the others' 0.124
      if (i < 50) step.work = ranks.rank() == 1 && i == 20 ? 10 : 0.1;
      ranks.exchange(step);
      EXPECT_EQ(ranks.straggler().value_or(""), "");
    }
  });
  EXPECT_EQ(failures, std::vector<std::string>(6));
}

// Steps that take half or twice as long by chance, as where data comes over a busy network: two ranks whose
// medians differ by that are alike, and one that takes three times as long in truth is named all the same.
TEST(Ranks, NoisySteps) {
  constexpr int kWindows = 40, kSteps = 50;
  const auto failures = comm::run_ranks(2, [](const ConnectOptions& options) {
    Ranks ranks(comm::connect(options));
    std::mt19937 random(static_cast<unsigned>(ranks.rank() + 1));
    std::lognormal_distribution<double> seconds(std::log(0.1), 0.5);
    std::vector<std::string> named;
    for (int i = 0; i < (kWindows + 1) * kSteps; ++i) {
      if (i == kWindows * kSteps) {
        EXPECT_EQ(named, std::vector<std::string>());
        named.clear();
      }
      Ranks::Step step;
      step.work = seconds(random) * (i >= kWindows * kSteps && ranks.rank() == 1 ? 3 : 1);
      ranks.exchange(step);
      if (const auto slow = ranks.straggler()) named.push_back(*slow);
    }
    ASSERT_EQ(named.size(), 1U);
    EXPECT_TRUE(named[0].starts_with("rank 1 (")) << named[0];
  });
  EXPECT_EQ(failures, std::vector<std::string>(2));
}

TEST(Ranks, StateAndStatisticsFollowRank0) {
  const auto failures = comm::run_ranks(3, [](const ConnectOptions& options) {
    Ranks ranks(comm::connect(options));
    FakeState state(static_cast<std::uint64_t>(ranks.rank() + 1));
    ranks.broadcast_state(state);
    const FakeState first(1);
    for (const std::string& name : state.names()) EXPECT_EQ(state.values(name), first.values(name)) << name;
    ranks.check_state(state, 7);
    // Running statistics are each rank's own until rank 0's are taken.
    std::vector<float> mean(4, static_cast<float>(ranks.rank()));
    state.write("bn1.running_mean", mean);
    ranks.check_state(state, 8);
    ranks.broadcast_statistics(state);
    EXPECT_EQ(state.values("bn1.running_mean"), std::vector<float>(4, 0));
    EXPECT_EQ(state.values("fc.weight"), first.values("fc.weight"));
    EXPECT_EQ(state.values("bn1.running_mean.ema"), first.values("bn1.running_mean.ema"));
  });
  EXPECT_EQ(failures, kNoFailures);
}

TEST(Ranks, ADamagedBitIsNamed) {
  for (const std::string name : {"fc.weight", "conv1.weight.momentum"}) {
    const auto failures = comm::run_ranks(3, [&](const ConnectOptions& options) {
      Ranks ranks(comm::connect(options));
      FakeState state(1);
      if (ranks.rank() == 2) {
        std::vector<float> damaged = state.values(name);
        damaged[5] = std::nextafter(damaged[5], 1e9F);  // one bit
        state.write(name, damaged);
      }
      ranks.check_state(state, 9);
    });
    for (const std::string& failure : failures)
      EXPECT_TRUE(failure.starts_with("after step 9, " + name + " of rank 2 (")) << failure;
  }
}

TEST(Ranks, PlaceFollowsRank0AndNumbersMustAgree) {
  const auto failures = comm::run_ranks(3, [](const ConnectOptions& options) {
    Ranks ranks(comm::connect(options));
    Progress place;
    if (ranks.rank() == 0) {
      place.step = 12345678901;
      place.epoch = 3;
      place.gap.exchange = 0.25;
      place.evaluated = true;
      place.best = Best{11, 0.5, "ema", 3, 1.5};
    }
    ranks.broadcast(place);
    EXPECT_EQ(place.step, 12345678901);
    EXPECT_EQ(place.epoch, 3);
    EXPECT_EQ(place.gap.exchange, 0.25);
    EXPECT_TRUE(place.evaluated);
    ASSERT_TRUE(place.best);
    EXPECT_EQ(place.best->weights, "ema");
    EXPECT_EQ(place.best->epoch, 3);
    EXPECT_EQ(place.best->elapsed, 1.5);
    EXPECT_TRUE(ranks.broadcast(ranks.rank() == 0));
    ranks.must_agree(5, "the number of images");
    ranks.must_agree(ranks.rank() == 1 ? 6 : 5, "the number of images");
  });
  for (const std::string& failure : failures)
    EXPECT_TRUE(failure.starts_with("the number of images is 5 on rank 0 (")) << failure;
}

}  // namespace
}  // namespace redline::train
