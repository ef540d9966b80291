#include "train/schedule.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/error.h"

namespace redline::train {
namespace {

Config config(const std::string& name, std::int64_t epochs) {
  Config result;
  result.schedule.name = name;
  result.schedule.epochs = epochs;
  result.optimizer.lr = 0.4;
  return result;
}

TEST(Schedule, StepFallsAtEveryStepSize) {
  Config options = config("step", 90);
  const Schedule schedule = make_schedule(options, 10);
  EXPECT_EQ(schedule.total_steps, 900);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 299), 0.4);
  EXPECT_NEAR(learning_rate(schedule, 300), 0.04, 1e-15);
  EXPECT_NEAR(learning_rate(schedule, 899), 0.004, 1e-15);
}

TEST(Schedule, MilestonesCountFromTheBeginningAlsoWithWarmUp) {
  Config options = config("step", 10);
  options.schedule.milestones = {3, 6};
  options.schedule.gamma = 0.5;
  options.schedule.warmup_epochs = 1;
  const Schedule schedule = make_schedule(options, 4);
  EXPECT_NEAR(learning_rate(schedule, 0), 0.1, 1e-15);  // a quarter of the way up
  EXPECT_NEAR(learning_rate(schedule, 3), 0.4, 1e-15);
  EXPECT_NEAR(learning_rate(schedule, 11), 0.4, 1e-15);
  EXPECT_NEAR(learning_rate(schedule, 12), 0.2, 1e-15);
  EXPECT_NEAR(learning_rate(schedule, 24), 0.1, 1e-15);
}

TEST(Schedule, CosineGoesFromPeakAfterWarmUpToTheFloor) {
  Config options = config("cosine", 12);
  options.schedule.warmup_steps = 2;
  options.schedule.min_lr = 0.1;
  const Schedule schedule = make_schedule(options, 1);
  EXPECT_NEAR(learning_rate(schedule, 0), 0.2, 1e-15);
  EXPECT_NEAR(learning_rate(schedule, 1), 0.4, 1e-15);
  EXPECT_NEAR(learning_rate(schedule, 2), 0.4, 1e-15);   // done 0 of 10
  EXPECT_NEAR(learning_rate(schedule, 7), 0.25, 1e-15);  // half way
  EXPECT_NEAR(learning_rate(schedule, 11), 0.1 + 0.3 * 0.5 * (1 + std::cos(M_PI * 0.9)), 1e-15);
}

TEST(Schedule, PolynomialOfPowerTwo) {
  const Schedule schedule = make_schedule(config("poly", 10), 1);
  EXPECT_NEAR(learning_rate(schedule, 0), 0.4, 1e-15);
  EXPECT_NEAR(learning_rate(schedule, 5), 0.1, 1e-15);    // 0.4 x 0.5^2
  EXPECT_NEAR(learning_rate(schedule, 9), 0.004, 1e-15);  // 0.4 x 0.1^2
}

TEST(Schedule, BatchScalingCountsAccumulatedImages) {
  Config options = config("cosine", 1);
  options.optimizer.batch_size = 64;
  options.optimizer.accumulate = 8;
  options.optimizer.lr_scale_batch = true;
  EXPECT_DOUBLE_EQ(make_schedule(options, 100).peak, 0.8);  // 512 / 256
}

TEST(Schedule, StepsTakeTheRoleOfEpochs) {
  Config options;
  options.schedule.steps = 7;
  EXPECT_EQ(total_steps(options, 100), 7);
  options.schedule.steps.reset();
  EXPECT_EQ(total_steps(options, 100), 100 * kDefaultEpochs);
}

TEST(Schedule, WarmUpMustLeaveSomethingToTrain) {
  Config options = config("cosine", 5);
  options.schedule.warmup_epochs = 5;
  EXPECT_THROW(make_schedule(options, 10), UsageError);
}

TEST(Schedule, HugeLengthsDoNotOverflow) {
  Config options = config("step", std::int64_t{1} << 62);
  const Schedule schedule = make_schedule(options, 1000);
  EXPECT_GT(schedule.total_steps, 0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 5), 0.4);
}

TEST(TrainSizes, EachHasItsShareOfTheEpochs) {
  Config config;
  EXPECT_EQ(train_size(config, 3, 90), config.model.image_size);
  EXPECT_EQ(train_sizes(config), (std::vector<std::int64_t>{config.model.image_size}));
  config.schedule.train_sizes = {160, 160, 160, 192};
  EXPECT_EQ(train_sizes(config), (std::vector<std::int64_t>{192, 160}));
  EXPECT_EQ(train_size(config, 11, 16), 160);
  EXPECT_EQ(train_size(config, 12, 16), 192);
  EXPECT_EQ(train_size(config, 15, 16), 192);
  EXPECT_EQ(train_size(config, 16, 16), 192);  // a run that goes on longer
  config.schedule.train_sizes = {128, 160, 192};
  std::vector<std::int64_t> sizes;
  for (std::int64_t epoch = 0; epoch < 7; ++epoch) sizes.push_back(train_size(config, epoch, 7));
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{128, 128, 128, 160, 160, 192, 192}));
  EXPECT_EQ(train_size(config, 0, 1), 128);  // fewer epochs than sizes
}

TEST(EmaDecay, WarmsUpToTheWantedDecay) {
  EXPECT_DOUBLE_EQ(ema_decay(0.999, 0), 0.1);
  EXPECT_DOUBLE_EQ(ema_decay(0.999, 90), 91.0 / 100);
  EXPECT_DOUBLE_EQ(ema_decay(0.999, 1000000), 0.999);
}

}  // namespace
}  // namespace redline::train
