// Steps that are abandoned because somebody wants the run to end: the state is that of the step before, to
// the bit, on every rank, and a run that goes on from there ends as an undisturbed one.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/run_ranks.h"
#include "tests/train/fakes.h"
#include "train/trainer.h"

namespace redline::train {
namespace {

constexpr std::chrono::hours kNoHurry{1};  // a step that was not told to end comes to its end
constexpr int kSize = 16, kClasses = 6, kSteps = 3;

using Weights = std::map<std::string, std::vector<float>>;

Config small(int ranks, bool sync_bn) {
  Config config;
  config.model.name = "resnet18";
  config.model.image_size = kSize;
  config.model.classes = kClasses;
  config.model.ema = true;
  config.data.path = "synthetic";
  config.device.name = sync_bn ? "cpu" : "reference";
  config.comm.sync_bn = sync_bn;
  config.optimizer.batch_size = 2;
  config.optimizer.accumulate = 2;
  config.optimizer.lr = 0.02;
  config.schedule.steps = kSteps;
  config.comm.bucket_mb = 4;
  config.run.seed = 7;
  config.ranks = ranks;
  return config;
}

// A trainer of one rank, which wants to end when its device has asked for the `stop_at`th time.
struct Bench {
  explicit Bench(std::optional<std::int64_t> stop_at = {},
                 const std::shared_ptr<comm::Communicator>& communicator = {}, bool sync_bn = false,
                 int samples = 4 * kSteps, std::chrono::milliseconds stop_grace = {})
      : config(small(communicator == nullptr ? 1 : communicator->size(), sync_bn)),
        backend(make_backend(stop_at, communicator, stop_grace)),
        train(samples, 2, kSize, kClasses, communicator == nullptr ? 1U : 1U + communicator->rank()),
        val(3, 2, kSize, kClasses, 9),
        plans(make_plans(config, *backend, graph::DType::f32, kClasses, 2)) {
    recorder.add(std::make_unique<KeepingSink>(records));
    trainer = std::make_unique<Trainer>(config, plans, *backend, train, &val, recorder, communicator);
  }
  std::unique_ptr<backend::Backend> make_backend(std::optional<std::int64_t> stop_at,
                                                 const std::shared_ptr<comm::Communicator>& communicator,
                                                 std::chrono::milliseconds stop_grace) {
    backend::DeviceOptions options;
    options.device = config.device.name;
    options.threads = 1;
    options.communicator = communicator;
    options.stop_grace = stop_grace;
    options.stop = [this, stop_at] {
      if (++asked == stop_at) stop = true;
      return stop.load();
    };
    return backend::make_backend(options);
  }
  // From this batch on the data does not come, and the run is stopped while it waits.
  void hang_from(std::int64_t batch) {
    train.hangs_from = batch;
    train.on_hang = [this] { stop = true; };
  }
  // How often the device asks in a step: twice over all ops of forward and backward but the first.
  std::int64_t asks_in_step() const { return 2 * (std::int64_t{plans.train->update_begin} - 1); }
  Weights weights() const {
    Weights all;
    for (const std::string& name : trainer->state().names()) {
      auto& values = all[name];
      values.resize(static_cast<std::size_t>(trainer->state().tensor(name).shape.elements()));
      trainer->state().read(name, values);
    }
    return all;
  }

  std::atomic<bool> stop{false};
  std::int64_t asked = 0;
  Config config;
  std::unique_ptr<backend::Backend> backend;
  FakeBatches train, val;
  Plans plans;
  Records records;
  metrics::Recorder recorder;
  std::unique_ptr<Trainer> trainer;
};

// Where a step may be: shortly after it began, in the middle of its first batch, and at the end of the
// second.
std::vector<std::int64_t> moments(const Bench& bench) {
  const std::int64_t step = bench.asks_in_step();
  return {1, step / 4, step / 2 + 1, step * 15 / 16, step};
}

// Runs to the end. Returns the weights after the first step, which had batches 0 and 1.
Weights run_whole(Bench& whole) {
  Weights after_one;
  int batches = 0;
  whole.train.on_next = [&] {
    if (++batches == 3) after_one = whole.weights();
  };
  EXPECT_TRUE(whole.trainer->run(whole.stop));
  return after_one;
}

TEST(AbandonedStep, LeavesTheStateOfTheStepBeforeAndGoesOnToTheSameEnd) {
  Bench whole;
  const Weights after_one = run_whole(whole);
  EXPECT_NE(after_one, whole.weights());
  for (const std::int64_t moment : moments(whole)) {
    Bench cut(whole.asks_in_step() + moment);
    EXPECT_FALSE(cut.trainer->run(cut.stop));
    EXPECT_EQ(cut.trainer->progress().step, 1) << moment;
    EXPECT_EQ(cut.trainer->progress().step_in_epoch, 1) << moment;
    EXPECT_EQ(cut.records.steps.size(), 1U);
    EXPECT_TRUE(cut.trainer->can_save());
    EXPECT_EQ(cut.weights(), after_one) << moment;
    if (moment != 1) continue;
    Bench rest;
    for (const auto& [name, values] : cut.weights()) rest.trainer->state().write(name, values);
    rest.trainer->go_on(cut.trainer->progress());
    EXPECT_TRUE(rest.trainer->run(rest.stop));
    EXPECT_EQ(rest.weights(), whole.weights());
  }
}

// A profile has no part of a step that was left.
TEST(AbandonedStep, IsLeftWhileItWaitsForData) {
  Bench whole;
  const Weights after_one = run_whole(whole);
  for (const std::int64_t batch : {2, 3}) {
    for (const bool profiled : {false, true}) {
      Bench cut({}, {}, false, 4 * kSteps, kNoHurry);
      cut.hang_from(batch);
      profile::SessionOptions options;
      options.start = 1;
      profile::Session session(options, *cut.backend);
      if (profiled) cut.trainer->profile(session);
      EXPECT_FALSE(cut.trainer->run(cut.stop));
      EXPECT_EQ(cut.trainer->progress().step, 1) << batch;
      EXPECT_EQ(cut.records.steps.size(), 1U);
      EXPECT_TRUE(cut.trainer->can_save());
      EXPECT_EQ(cut.weights(), after_one) << batch;
      if (!profiled) continue;
      EXPECT_EQ(session.finish({}, {}, {}).timeline.steps.size(), 1U);
    }
  }
}

// As where a measurement has a flag of its own for other reasons to end.
TEST(AbandonedStep, EndsTheRunThoughNobodyElseAskedForIt) {
  Bench cut(2);
  const std::atomic<bool> never{false};
  EXPECT_FALSE(cut.trainer->run(never));
  EXPECT_EQ(cut.trainer->progress().step, 0);
  EXPECT_TRUE(cut.records.steps.empty());
}

TEST(AbandonedStep, AnEvaluationIsRepeatedByWhoGoesOn) {
  Bench whole;
  EXPECT_TRUE(whole.trainer->run(whole.stop));
  ASSERT_EQ(whole.records.evaluations.size(), 2U);
  for (const std::int64_t last : {0, 1}) {  // in the first batch of two, and in the last of the averages'
    const std::int64_t asks = whole.asked - kSteps * whole.asks_in_step();
    Bench cut(kSteps * whole.asks_in_step() + (last == 1 ? asks : 2));
    EXPECT_FALSE(cut.trainer->run(cut.stop));
    EXPECT_EQ(cut.records.evaluations.size(), static_cast<std::size_t>(last));
    EXPECT_EQ(cut.weights(), whole.weights());
    EXPECT_FALSE(cut.trainer->progress().evaluated);
  }
}

// Otherwise the run that goes on would take the evaluation for one that is still to come, and remove it.
TEST(AbandonedStep, OfANewEpochLeavesTheEvaluationBeforeItDone) {
  constexpr int kOneStep = 4;  // images: an epoch is one step
  Bench whole({}, {}, false, kOneStep);
  EXPECT_TRUE(whole.trainer->run(whole.stop));
  const std::int64_t asks = (whole.asked - kSteps * whole.asks_in_step()) / kSteps;
  Bench cut(whole.asks_in_step() + asks + 1, {}, false, kOneStep);
  EXPECT_FALSE(cut.trainer->run(cut.stop));
  EXPECT_EQ(cut.records.steps.size(), 1U);
  EXPECT_EQ(cut.records.evaluations.size(), 2U);
  const Progress progress = cut.trainer->progress();
  EXPECT_EQ(progress.step, 1);
  EXPECT_TRUE(progress.evaluated);
  Bench rest({}, {}, false, kOneStep);
  for (const auto& [name, values] : cut.weights()) rest.trainer->state().write(name, values);
  rest.trainer->go_on(progress);
  EXPECT_TRUE(rest.trainer->run(rest.stop));
  EXPECT_EQ(rest.records.evaluations.size(), 4U);
  EXPECT_EQ(rest.weights(), whole.weights());
}

// Of two ranks, one or the other wants to end in the middle of the second step.
void check_no_step_on_any_rank(bool sync_bn) {
  std::vector<Weights> after_one(2);
  std::int64_t asks = 0;
  std::vector<std::int64_t> all;
  const auto undisturbed = comm::run_ranks(2, [&](const comm::ConnectOptions& options) {
    Bench bench({}, comm::connect(options), sync_bn);
    const auto rank = static_cast<std::size_t>(options.world.rank);
    int batches = 0;
    bench.train.on_next = [&] {
      if (++batches == 3) after_one[rank] = bench.weights();
    };
    EXPECT_TRUE(bench.trainer->run(bench.stop));
    if (rank != 0) return;
    asks = bench.asks_in_step();
    // Before and after the first gradients are given; where norms are synchronised, in a pass forward and in
    // one backward.
    all = {asks / 4, sync_bn ? asks * 7 / 8 : asks * 15 / 16};
  });
  ASSERT_EQ(undisturbed, std::vector<std::string>(2));
  for (const std::int64_t moment : all) {
    for (const int stopped : {0, 1}) {
      const auto failures = comm::run_ranks(2, [&](const comm::ConnectOptions& options) {
        const int rank = options.world.rank;
        Bench bench(rank == stopped ? std::optional(asks + moment) : std::nullopt, comm::connect(options),
                    sync_bn);
        EXPECT_FALSE(bench.trainer->run(bench.stop));
        EXPECT_EQ(bench.trainer->progress().step, 1) << moment;
        EXPECT_EQ(bench.records.steps.size(), 1U);
        EXPECT_EQ(bench.weights(), after_one[static_cast<std::size_t>(rank)]) << moment << " rank " << rank;
      });
      EXPECT_EQ(failures, std::vector<std::string>(2));
    }
  }
}

// One rank or both wait for the first or the second batch of the second step when the run is stopped; the
// other may not know yet.
void check_waiting_ranks(bool sync_bn) {
  std::vector<Weights> after_one(2);
  const auto undisturbed = comm::run_ranks(2, [&](const comm::ConnectOptions& options) {
    Bench bench({}, comm::connect(options), sync_bn);
    int batches = 0;
    bench.train.on_next = [&] {
      if (++batches == 3) after_one[static_cast<std::size_t>(options.world.rank)] = bench.weights();
    };
    EXPECT_TRUE(bench.trainer->run(bench.stop));
  });
  ASSERT_EQ(undisturbed, std::vector<std::string>(2));
  constexpr std::int64_t kNever = 1000;
  for (const auto& hang : {std::array{2, 1000}, {1000, 3}, {3, 3}}) {
    const auto failures = comm::run_ranks(2, [&](const comm::ConnectOptions& options) {
      const auto rank = static_cast<std::size_t>(options.world.rank);
      Bench bench({}, comm::connect(options), sync_bn, 4 * kSteps, kNoHurry);
      if (hang[rank] < kNever) bench.hang_from(hang[rank]);
      EXPECT_FALSE(bench.trainer->run(bench.stop));
      EXPECT_EQ(bench.trainer->progress().step, 1) << hang[0] << " " << hang[1];
      EXPECT_EQ(bench.records.steps.size(), 1U);
      EXPECT_TRUE(bench.trainer->can_save());
      EXPECT_EQ(bench.weights(), after_one[rank]) << hang[0] << " " << hang[1] << " rank " << rank;
    });
    EXPECT_EQ(failures, std::vector<std::string>(2));
  }
}

TEST(AbandonedStep, IsLeftByAllRanksIfOneWaitsForData) { check_waiting_ranks(false); }

TEST(AbandonedStep, IsLeftByAllRanksIfOneWaitsForDataAndNormsAreSynchronised) { check_waiting_ranks(true); }

TEST(AbandonedStep, AnEvaluationIsLeftByAllRanksIfOneWaitsForData) {
  for (const int waits : {0, 1}) {
    const auto failures = comm::run_ranks(2, [&](const comm::ConnectOptions& options) {
      Bench bench({}, comm::connect(options));
      if (options.world.rank == waits) {
        bench.val.hangs_from = 1;
        bench.val.on_hang = [&] { bench.stop = true; };
      }
      EXPECT_FALSE(bench.trainer->run(bench.stop));
      EXPECT_EQ(bench.trainer->progress().step, kSteps);
      EXPECT_TRUE(bench.records.evaluations.empty());
    });
    EXPECT_EQ(failures, std::vector<std::string>(2));
  }
}

TEST(AbandonedStep, IsNoStepOnAnyRank) { check_no_step_on_any_rank(false); }

TEST(AbandonedStep, IsLeftByAllRanksTogetherWhereNormsAreSynchronised) { check_no_step_on_any_rank(true); }

}  // namespace
}  // namespace redline::train
