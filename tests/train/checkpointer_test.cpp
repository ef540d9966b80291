// When checkpoints are written, which stay, and what happens when they cannot be written.
#include "train/checkpointer.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/base/temporary_folder.h"
#include "tests/train/fake_state.h"
#include "train/folded.h"
#include "train/loss_watch.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

constexpr double kPatience = 30;  // seconds; writing takes milliseconds

CheckpointerOptions options(const TemporaryFolder& folder, const std::string& every, std::int64_t keep = 3) {
  return {folder / "checkpoints", parse_interval(every, "--checkpoint-every"), keep, {}, {}};
}

Progress at(std::int64_t step, double top1 = -1) {
  Progress progress;
  progress.step = step;
  if (top1 >= 0) progress.best = Best{step, top1, "model"};
  return progress;
}

TEST(Checkpointer, KeepsTheNewestAndTheBest) {
  const TemporaryFolder folder;
  FakeState state(1);
  Checkpointer checkpointer(options(folder, "1", /*keep=*/2), state);
  for (const std::int64_t step : {1, 2, 3, 4, 5}) {
    checkpointer.save(at(step, step == 2 ? 0.5 : -1), Stopwatch());
    ASSERT_TRUE(checkpointer.wait(kPatience));
    EXPECT_EQ(fs::read_symlink(folder / "checkpoints" / "latest"), checkpoint_name(step));
    EXPECT_EQ(checkpointer.newest(), step);
  }
  EXPECT_EQ(list_checkpoints(folder / "checkpoints"), (std::vector<std::int64_t>{5, 4, 2}));
  EXPECT_EQ(fs::read_symlink(folder / "checkpoints" / "best"), "step-2");
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints"))
    EXPECT_NE(entry.path().filename().string()[0], '.') << entry.path();
  const auto records = checkpointer.finished();
  ASSERT_EQ(records.size(), 5U);
  EXPECT_TRUE(records[1].best);
  EXPECT_FALSE(records[2].best);
  EXPECT_GT(records[0].bytes, 1000U);
  EXPECT_GT(records[0].write_seconds, 0);
  EXPECT_TRUE(checkpointer.finished().empty());
}

// A run that was stopped in an evaluation goes on from a checkpoint that is on the disk already: once the
// evaluation is done, that is all there is to add.
TEST(Checkpointer, AnEvaluationIsAddedToTheCheckpointOfItsStep) {
  const TemporaryFolder folder;
  FakeState state(1);
  {
    Checkpointer first(options(folder, "1"), state);
    first.save(at(7), Stopwatch());
  }
  CheckpointerOptions again = options(folder, "1");
  again.resumed = at(7);
  FakeState other(2);  // must not be written
  Checkpointer checkpointer(std::move(again), other);
  checkpointer.save(at(7), Stopwatch());  // nothing is new
  EXPECT_TRUE(checkpointer.wait(0));
  Progress evaluated = at(7, 0.5);
  evaluated.evaluated = true;
  for (int times = 0; times < 2; ++times) {
    checkpointer.save(evaluated, Stopwatch());
    ASSERT_TRUE(checkpointer.wait(kPatience));
  }
  EXPECT_EQ(fs::read_symlink(folder / "checkpoints" / "best"), "step-7");
  const auto records = checkpointer.finished();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].bytes, 0U);
  EXPECT_TRUE(records[0].error.empty()) << records[0].error;
  const Checkpoint found = open_checkpoint(folder / "checkpoints" / "step-7");  // whole
  EXPECT_TRUE(found.state.progress.evaluated);
  EXPECT_EQ(found.state.progress.best->top1, 0.5);
  FakeState restored(3);
  restore(found, restored);
  EXPECT_EQ(restored.values("fc.weight"), state.values("fc.weight"));
}

TEST(Checkpointer, IsDueByStepsEpochsAndTime) {
  const TemporaryFolder folder;
  FakeState state(1);
  Checkpointer steps(options(folder, "10"), state), epochs(options(folder, "2ep"), state),
      hours(options(folder, "1h"), state), off(options(folder, "off"), state);
  EXPECT_FALSE(steps.due(at(9), false));
  EXPECT_TRUE(steps.due(at(10), false));
  Progress progress = at(50);
  progress.epoch = 1;  // the second
  EXPECT_TRUE(epochs.due(progress, true));
  EXPECT_FALSE(epochs.due(progress, false));
  progress.epoch = 2;
  EXPECT_FALSE(epochs.due(progress, true));
  EXPECT_FALSE(hours.due(at(10), true));
  EXPECT_FALSE(off.due(at(10), true));
}

TEST(Checkpointer, AFailureIsToldAndTheLastGoodOneStays) {
  const TemporaryFolder folder;
  FakeState state(1);
  Checkpointer checkpointer(options(folder, "1"), state);
  checkpointer.save(at(1), Stopwatch());
  ASSERT_TRUE(checkpointer.wait(kPatience));
  fs::rename(folder / "checkpoints", folder / "elsewhere");
  std::ofstream(folder / "checkpoints") << "a file in the way";
  checkpointer.save(at(2), Stopwatch());
  ASSERT_TRUE(checkpointer.wait(kPatience));
  EXPECT_EQ(checkpointer.newest(), 1);
  const auto records = checkpointer.finished();
  ASSERT_EQ(records.size(), 2U);
  EXPECT_TRUE(records[0].error.empty());
  EXPECT_FALSE(records[1].error.empty());
  // The way is free again.
  fs::remove(folder / "checkpoints");
  fs::rename(folder / "elsewhere", folder / "checkpoints");
  checkpointer.save(at(3), Stopwatch());
  ASSERT_TRUE(checkpointer.wait(kPatience));
  EXPECT_EQ(checkpointer.newest(), 3);
  EXPECT_EQ(list_checkpoints(folder / "checkpoints"), (std::vector<std::int64_t>{3, 1}));
}

TEST(Interval, IsStepsEpochsOrTime) {
  const auto parse = [](const char* text) { return parse_interval(text, "--every"); };
  EXPECT_EQ(parse("500").unit, Interval::Unit::steps);
  EXPECT_EQ(parse("500").count, 500);
  EXPECT_EQ(parse("2ep").unit, Interval::Unit::epochs);
  EXPECT_EQ(parse("90s").count, 90);
  EXPECT_EQ(parse("5m").count, 300);
  EXPECT_EQ(parse("1h").count, 3600);
  EXPECT_EQ(parse("5m").unit, Interval::Unit::seconds);
  EXPECT_EQ(parse("off").unit, Interval::Unit::never);
  EXPECT_EQ(parse("0").unit, Interval::Unit::never);
  for (const char* bad : {"", "-5", "5 m", "m", "5min", "1.5h", "99999999999999999999", "5000000000"})
    EXPECT_THROW(parse(bad), UsageError) << bad;
}

TEST(LossWatch, ASpikeIsToldOnceAndNoiseIsNot) {
  LossWatch watch;
  Random random(1);
  int told = 0;
  for (int step = 0; step < 3000; ++step) {  // falls from 7 with the noise of a small batch
    const double loss = 1 + 6 * std::exp(-step / 500.0) + 0.3 * random.normal();
    told += watch.add(loss).has_value() ? 1 : 0;
  }
  EXPECT_EQ(told, 0);
  for (int step = 0; step < 10; ++step) {
    const auto spike = watch.add(20);
    EXPECT_EQ(spike.has_value(), step == 0);
    if (spike.has_value()) {
      EXPECT_NEAR(spike->median, 1, 0.3);
    }
  }
  EXPECT_FALSE(watch.add(1).has_value());
  EXPECT_FALSE(watch.add(25).has_value());  // as large as those before: nothing new
  EXPECT_TRUE(watch.add(90).has_value());   // another one
  EXPECT_FALSE(watch.add(std::nan("")).has_value());
}

// A small batch whose loss has a long tail: one in ten is several times the others.
TEST(LossWatch, LossesThatJumpOftenAreNotNewsEachTime) {
  LossWatch watch;
  Random random(3);
  Folded warnings;
  int told = 0, said = 0;
  for (int step = 0; step < 4000; ++step) {
    const double tail = random.normal();
    if (!watch.add(1 + 0.02 * random.normal() + (step % 10 == 9 ? 2 * tail * tail : 0))) continue;
    ++told;
    said += warnings.say() ? 1 : 0;
  }
  EXPECT_LE(told, 4000 / 100);
  EXPECT_LE(said, 6);
}

TEST(Folded, SaysTheFirstAndThenEachDoubling) {
  Folded warning;
  std::vector<int> said;
  EXPECT_EQ(warning.times(), "");
  for (int i = 1; i <= 40; ++i)
    if (warning.say()) said.push_back(i);
  EXPECT_EQ(said, (std::vector<int>{1, 2, 4, 8, 16, 32}));
  EXPECT_EQ(warning.times(), " (40 times so far)");
}

TEST(LossWatch, ANewLevelBecomesNormal) {
  LossWatch watch;
  int told = 0;
  for (int step = 0; step < 1000; ++step)
    told += watch.add(step < 500 ? 1 + 0.01 * (step % 7) : 9).has_value();
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace redline::train
