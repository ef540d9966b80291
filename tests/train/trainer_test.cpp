// The training loop on the reference backend with a small ResNet-18: the real numbers, not a stand-in's.
#include "train/trainer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/train/fakes.h"
#include "train/observe.h"

namespace redline::train {
namespace {

constexpr int kSize = 32, kClasses = 6;

Config small() {
  Config config;
  config.model.name = "resnet18";
  config.model.image_size = kSize;
  config.model.classes = kClasses;
  config.data.path = "synthetic";
  config.device.name = "reference";
  config.optimizer.batch_size = 4;
  config.optimizer.lr = 0.02;
  config.schedule.name = "cosine";
  config.schedule.steps = 3;
  config.run.seed = 7;
  return config;
}

using Weights = std::map<std::string, std::vector<float>>;

// A trainer with all it stands on.
struct Bench {
  explicit Bench(const Config& config, int train_samples = 4, int val_samples = 0,
                 graph::DType dtype = graph::DType::f32)
      : backend(reference_backend()),
        train(train_samples, static_cast<int>(config.optimizer.batch_size), kSize, kClasses, 1),
        val(std::max(1, val_samples), static_cast<int>(config.optimizer.batch_size), kSize, kClasses, 2),
        plans(make_plans(config, *backend, dtype, kClasses, config.optimizer.batch_size)) {
    recorder.add(std::make_unique<KeepingSink>(records));
    trainer =
        std::make_unique<Trainer>(config, plans, *backend, train, val_samples > 0 ? &val : nullptr, recorder);
  }

  Weights weights() const {
    Weights all;
    for (const std::string& name : trainer->state().names()) {
      auto& values = all[name];
      values.resize(static_cast<std::size_t>(trainer->state().tensor(name).shape.elements()));
      trainer->state().read(name, values);
    }
    return all;
  }

  std::unique_ptr<backend::Backend> backend;
  FakeBatches train, val;
  Plans plans;
  Records records;
  metrics::Recorder recorder;
  std::unique_ptr<Trainer> trainer;
  std::atomic<bool> stop{false};
};

TEST(Trainer, LossFallsOnAFixedBatch) {
  Config config = small();
  config.schedule.steps = 12;
  Bench bench(config);
  EXPECT_TRUE(bench.trainer->run(bench.stop));
  ASSERT_EQ(bench.records.steps.size(), 12U);
  // Six classes at random: ln 6 = 1.79 and more at the start. Four images are soon known by heart.
  EXPECT_GT(bench.records.steps.front().loss, 1.0);
  EXPECT_LT(bench.records.steps.back().loss, 0.5 * bench.records.steps.front().loss);
  EXPECT_EQ(bench.records.steps.back().top1, 1.0);
}

TEST(Trainer, ASlowSourceShowsAsWaitForDataAndAllTimesAddUp) {
  constexpr auto kLate = std::chrono::milliseconds(30);
  Config config = small();
  config.schedule.steps = 2;
  Bench bench(config, 4, 4);
  bench.train.on_next = [&] { std::this_thread::sleep_for(kLate); };
  EXPECT_TRUE(bench.trainer->run(bench.stop));
  const metrics::End end = bench.trainer->summary("finished", "");
  ASSERT_EQ(bench.records.steps.size(), 2U);
  double steps = 0;
  for (const metrics::Step& step : bench.records.steps) {
    EXPECT_GE(step.gap.data, 0.030);
    EXPECT_LT(step.data_wait(), 1);
    steps += step.seconds + step.gap.total();
    EXPECT_NEAR(step.elapsed, steps, 1e-6);
  }
  EXPECT_GT(bench.records.steps[1].gap.evaluation, 0) << "after each epoch, which is one step";
  EXPECT_NEAR(end.seconds, end.step_seconds + end.gap.total(), 1e-9);
  EXPECT_GT(end.seconds, steps) << "the last evaluation comes after the last step";
}

TEST(Trainer, SameSeedSameBitsOtherSeedOtherBits) {
  Config config = small();
  Bench first(config), second(config);
  first.trainer->run(first.stop);
  second.trainer->run(second.stop);
  EXPECT_EQ(first.weights(), second.weights());
  config.run.seed = 8;
  Bench other(config);
  other.trainer->run(other.stop);
  EXPECT_NE(first.weights(), other.weights());
}

// Two batches of the same four images accumulated are one batch of four: batch statistics agree, and so does
// the mean gradient, up to the rounding of one addition per value.
TEST(Trainer, AccumulatedBatchesAverageTheirGradients) {
  Config config = small();
  config.schedule.steps = 2;
  Bench once(config);
  once.trainer->run(once.stop);

  config.optimizer.accumulate = 2;
  Bench twice(config, 8);
  // Eight samples in two batches, the second a repetition of the first.
  FakeBatches& source = twice.train;
  source.repeat_first_batch = true;
  twice.trainer->run(twice.stop);

  const Weights expected = once.weights(), found = twice.weights();
  for (const auto& [name, values] : expected) {
    if (name.find("running") != std::string::npos) continue;  // moved once per batch, so twice as often
    const auto& others = found.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(others[i], values[i], 1e-5F + 1e-5F * std::abs(values[i])) << name << "[" << i << "]";
    }
  }
  ASSERT_EQ(twice.records.steps.size(), 2U);
  EXPECT_EQ(twice.records.steps[0].samples, 8);
  EXPECT_NEAR(twice.records.steps[0].loss, once.records.steps[0].loss, 1e-6);
}

TEST(Trainer, AveragesFollowTheFormula) {
  Config config = small();
  config.model.ema = true;
  config.model.ema_decay = 0.15;  // below (1 + step) / (10 + step) from the second step on
  config.schedule.steps = 2;
  Bench bench(config, 8);
  const std::vector<std::string> names = {"fc.weight", "bn1.running_mean", "layer4.1.bn2.weight"};
  std::vector<Weights> seen = {bench.weights()};
  bench.train.on_next = [&] { seen.push_back(bench.weights()); };  // before step 1, before step 2
  bench.trainer->run(bench.stop);
  seen.push_back(bench.weights());
  seen.erase(seen.begin());  // twice the same
  ASSERT_EQ(seen.size(), 3U);
  for (const std::string& name : names) {
    EXPECT_EQ(seen[0].at(name + ".ema"), seen[0].at(name))
        << name << ": an average begins as what it averages";
    for (std::size_t i = 0; i < seen[0].at(name).size(); ++i) {
      const double first = 0.1 * seen[0].at(name)[i] + 0.9 * seen[1].at(name)[i];
      ASSERT_NEAR(seen[1].at(name + ".ema")[i], first, 1e-6) << name;
      ASSERT_NEAR(seen[2].at(name + ".ema")[i], 0.15 * first + 0.85 * seen[2].at(name)[i], 1e-6) << name;
    }
  }
}

TEST(Trainer, EvaluatingAveragesGivesTheWeightsBack) {
  Config config = small();
  config.model.ema = true;
  config.schedule.steps = 1;
  Bench bench(config, 4, 5);
  bench.trainer->run(bench.stop);
  ASSERT_EQ(bench.records.evaluations.size(), 2U);
  EXPECT_EQ(bench.records.evaluations[0].weights, "model");
  EXPECT_EQ(bench.records.evaluations[1].weights, "ema");
  EXPECT_NE(bench.records.evaluations[0].loss, bench.records.evaluations[1].loss);
  const Weights before = bench.weights();
  EXPECT_NE(before.at("fc.weight"), before.at("fc.weight.ema"));
  bench.trainer->evaluate(/*averages=*/true, bench.stop);
  EXPECT_EQ(bench.weights(), before);
  // Stopped half way, they come back too.
  bench.val.on_next = [&] { bench.stop = true; };
  EXPECT_FALSE(bench.trainer->evaluate(/*averages=*/true, bench.stop).has_value());
  EXPECT_EQ(bench.weights(), before);
}

TEST(Trainer, EvaluationCountsEverySampleOnceWhateverTheBatch) {
  std::vector<metrics::Evaluation> found;
  for (const int batch : {1, 4, 5, 16}) {  // 11 samples: exact, odd, and padded last batches
    Config config = small();
    config.optimizer.batch_size = batch;
    Bench bench(config, batch, 11);
    const auto evaluation = bench.trainer->evaluate(/*averages=*/false, bench.stop);
    ASSERT_TRUE(evaluation.has_value());
    EXPECT_EQ(evaluation->samples, 11) << "batch " << batch;
    found.push_back(*evaluation);
  }
  for (const auto& evaluation : found) {
    EXPECT_EQ(evaluation.top1, found[0].top1);
    EXPECT_EQ(evaluation.top5, found[0].top5);
    EXPECT_NEAR(evaluation.loss, found[0].loss, 1e-6 * found[0].loss);  // fp32 sums in another order
  }
  EXPECT_EQ(found[0].top1 * 11, std::round(found[0].top1 * 11));
}

// Of a run of so many epochs.
std::vector<std::int64_t> evaluated_epochs(std::int64_t epochs, std::int64_t every, std::int64_t offset) {
  Config config = small();
  config.schedule.steps.reset();
  config.schedule.epochs = epochs;
  config.run.eval_every = every;
  config.run.eval_offset = offset;
  Bench bench(config, 4, 1);
  bench.trainer->run(bench.stop);
  std::vector<std::int64_t> found;
  for (const auto& evaluation : bench.records.evaluations) found.push_back(evaluation.epoch);
  return found;
}

TEST(Trainer, EvaluatesAtTheAskedEpochsAndAtTheEnd) {
  EXPECT_EQ(evaluated_epochs(5, 2, 0), (std::vector<std::int64_t>{2, 4, 5}));
}

TEST(Trainer, EvaluationsCanComeBesideTheMultiples) {
  EXPECT_EQ(evaluated_epochs(6, 4, 1), (std::vector<std::int64_t>{1, 5, 6}));
}

// The best accuracy of a run without a target is the target of a second one, and a little more that of a
// third.
TEST(Trainer, StopsAtTheFirstEvaluationThatReachesTheTarget) {
  Config config = small();
  config.schedule.steps.reset();
  config.schedule.epochs = 6;
  const auto accuracies = [](const Bench& bench) {
    std::vector<double> all;
    for (const auto& evaluation : bench.records.evaluations) all.push_back(evaluation.top1);
    return all;
  };
  Bench whole(config, 8, 12);
  EXPECT_TRUE(whole.trainer->run(whole.stop));
  const std::vector<double> all = accuracies(whole);
  ASSERT_EQ(all.size(), 6U);
  const auto best = std::ranges::max_element(all);
  ASSERT_LT(best, all.end() - 1) << "the test needs an accuracy that is reached before the end";
  EXPECT_FALSE(whole.trainer->summary("finished", "").target);

  config.run.target_accuracy = *best;
  Bench stopped(config, 8, 12);
  EXPECT_TRUE(stopped.trainer->run(stopped.stop));
  EXPECT_TRUE(stopped.trainer->finished());
  EXPECT_EQ(accuracies(stopped), std::vector<double>(all.begin(), best + 1));
  const auto target = stopped.trainer->summary("finished", "").target;
  ASSERT_TRUE(target && target->reached());
  EXPECT_EQ(target->epoch, best - all.begin() + 1);
  EXPECT_EQ(target->step, 2 * target->epoch);
  EXPECT_EQ(target->seconds, stopped.records.evaluations.back().elapsed);

  // A run that goes on from there with the same target has nothing left to do.
  Bench resumed(config, 8, 12);
  resumed.trainer->go_on(stopped.trainer->progress());
  EXPECT_TRUE(resumed.trainer->finished());

  config.run.target_accuracy = std::min(1.0, *best + 0.01);
  Bench missed(config, 8, 12);
  EXPECT_TRUE(missed.trainer->run(missed.stop));
  EXPECT_EQ(accuracies(missed), all);
  EXPECT_FALSE(missed.trainer->summary("finished", "").target->reached());
}

TEST(Trainer, RecordsTheScheduleAndWalksThroughEpochs) {
  Config config = small();
  config.schedule.steps = 5;
  Bench bench(config, 8);  // two batches an epoch
  bench.trainer->run(bench.stop);
  ASSERT_EQ(bench.records.steps.size(), 5U);
  const Schedule schedule = make_schedule(config, 2);
  for (std::int64_t i = 0; i < 5; ++i) {
    const metrics::Step& step = bench.records.steps[static_cast<std::size_t>(i)];
    EXPECT_EQ(step.step, i + 1);
    EXPECT_EQ(step.epoch, i / 2);
    EXPECT_EQ(step.step_in_epoch, i % 2);
    EXPECT_EQ(step.learning_rate, learning_rate(schedule, i));
  }
  EXPECT_EQ(bench.train.epochs_started, 3);
}

// An epoch of two steps on small images, one on large ones. A run that begins in the second, with what the
// first left, ends in the same bits: the sizes share weights, momentum and averages, and nothing else.
TEST(Trainer, SeveralImageSizesTrainTheSameWeightsExactlyAcrossAResume) {
  Config config = small();
  config.model.ema = true;
  config.schedule.steps.reset();
  config.schedule.epochs = 2;
  config.schedule.train_sizes = {kSize / 2, kSize};
  config.run.eval_every = 0;
  Bench whole(config, 8, 1), first(config, 8, 1), second(config, 8, 1);
  std::vector<int> sizes;
  whole.train.on_next = [&] { sizes.push_back(whole.train.image_size()); };
  whole.trainer->run(whole.stop);
  EXPECT_EQ(sizes, (std::vector<int>{16, 16, 32, 32}));
  ASSERT_EQ(whole.records.evaluations.size(), 2U);

  int batches = 0;
  first.train.on_next = [&] { first.stop = ++batches == 3; };  // in the middle of the second epoch
  first.trainer->run(first.stop);
  for (const auto& [name, values] : first.weights()) second.trainer->state().write(name, values);
  second.trainer->go_on(first.trainer->progress());
  second.trainer->run(second.stop);
  EXPECT_EQ(second.weights(), whole.weights());
  EXPECT_EQ(second.records.evaluations.back().loss, whole.records.evaluations.back().loss);
}

TEST(Trainer, StopsBetweenSteps) {
  Config config = small();
  config.schedule.steps = 100;
  Bench bench(config, 8, 1);
  int batches = 0;
  bench.train.on_next = [&] { bench.stop = ++batches == 3; };
  EXPECT_FALSE(bench.trainer->run(bench.stop));
  EXPECT_EQ(bench.records.steps.size(), 3U);  // the step at hand is finished
  EXPECT_EQ(bench.trainer->summary("interrupted", "").steps, 3);
}

// Between the evaluation of an epoch and the first step of the next.
TEST(Trainer, StopsWhileItWaitsForData) {
  Config config = small();
  config.schedule.steps = 8;
  Bench bench(config, 32, 12);
  bench.train.hangs_from = 3;
  bench.train.on_hang = [&] { bench.stop = true; };
  EXPECT_FALSE(bench.trainer->run(bench.stop));
  EXPECT_EQ(bench.trainer->progress().step, 3);
  EXPECT_EQ(bench.records.steps.size(), 3U);

  bench.stop = false;
  bench.val.hangs_from = 1;
  bench.val.on_hang = [&] { bench.stop = true; };
  EXPECT_FALSE(bench.trainer->evaluate(/*averages=*/false, bench.stop).has_value());
  bench.stop = false;
  bench.val.hangs_from = 100;
  EXPECT_TRUE(bench.trainer->evaluate(/*averages=*/false, bench.stop).has_value());
}

TEST(Trainer, StoppedAfterAnEvaluationItKnowsThatItIsDone) {
  class StopAtEvaluation final : public metrics::Sink {
   public:
    explicit StopAtEvaluation(std::atomic<bool>& stop) : stop_(stop) {}
    void evaluation(const metrics::Evaluation& /*evaluation*/) override { stop_ = true; }

   private:
    std::atomic<bool>& stop_;
  };
  Config config = small();
  config.run.patience = 1;
  Bench bench(config, 4, 4);
  bench.recorder.add(std::make_unique<StopAtEvaluation>(bench.stop));
  EXPECT_FALSE(bench.trainer->run(bench.stop));
  EXPECT_EQ(bench.trainer->progress().step, 1);
  EXPECT_TRUE(bench.trainer->progress().evaluated);
  EXPECT_FALSE(bench.trainer->finished()) << "the next epoch may be better";
  Bench resumed(config, 4, 4);
  resumed.trainer->go_on(bench.trainer->progress());
  resumed.trainer->run(resumed.stop);
  ASSERT_FALSE(resumed.records.evaluations.empty());
  EXPECT_EQ(resumed.records.evaluations.front().step, 2);
}

TEST(Trainer, AStepWithoutFiniteGradientsChangesNothing) {
  Config config = small();
  config.model.ema = true;
  config.run.max_bad_steps = 2;
  config.schedule.steps = 5;
  Bench bench(config);
  // A broken weight makes every logit NaN.
  std::vector<float> bias(kClasses, std::nanf(""));
  bench.trainer->state().write("fc.bias", bias);
  const Weights before = bench.weights();
  try {
    bench.trainer->run(bench.stop);
    FAIL() << "no loss was finite";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("the weights fc.bias are not finite"), std::string::npos)
        << error.what();
  }
  ASSERT_EQ(bench.records.steps.size(), 2U);
  EXPECT_TRUE(bench.records.steps[0].skipped);
  EXPECT_TRUE(std::isnan(bench.records.steps[0].loss));
  for (const auto& [name, values] : bench.weights()) {
    if (name == "fc.bias") continue;  // NaN is not equal to itself
    EXPECT_EQ(values, name == "skipped_steps" ? std::vector<float>{2} : before.at(name)) << name;
  }
  EXPECT_EQ(bench.trainer->summary("failed", "").skipped_steps, 2);
}

// fp16's gradients overflow at a scale of 2^18 and not at some power of two below: the steps up to it are
// refused, each halves the scale, and the first that counts is an ordinary one.
TEST(Trainer, AnOverflowHalvesTheLossScaleUntilAStepFits) {
  Config config = small();
  config.schedule.steps = 8;
  Bench bench(config, 4, 0, graph::DType::f16);
  bench.trainer->state().write("loss_scale", std::vector<float>{0x1p18F});
  const Weights before = bench.weights();
  bool fitted = false;
  for (const auto& name : {"conv1.weight", "bn1.running_mean"}) {
    ASSERT_TRUE(before.contains(name));
  }
  bench.train.on_next = [&] {
    const Weights now = bench.weights();
    fitted = fitted || now.at("conv1.weight") != before.at("conv1.weight");
    EXPECT_EQ(now.at("bn1.running_mean") != before.at("bn1.running_mean"), fitted);
  };
  bench.trainer->run(bench.stop);
  std::size_t skipped = 0;
  while (skipped < bench.records.steps.size() && bench.records.steps[skipped].skipped) ++skipped;
  ASSERT_GT(skipped, 0U);
  ASSERT_LT(skipped, bench.records.steps.size());
  EXPECT_EQ(bench.records.steps[skipped].loss_scale, std::ldexp(1.0, 18 - static_cast<int>(skipped)));
  // The norm is that of the unscaled gradient, and batch norms over four values amplify fp16's rounding.
  config.schedule.steps = 1;
  Bench exact(config);
  exact.trainer->run(exact.stop);
  EXPECT_NEAR(bench.records.steps[skipped].gradient_norm, exact.records.steps[0].gradient_norm,
              0.1 * exact.records.steps[0].gradient_norm);
}

TEST(Trainer, ARepairedLossResetsTheCount) {
  Config config = small();
  config.run.max_bad_steps = 2;
  config.schedule.steps = 4;
  Bench bench(config);
  int batch = 0;
  bench.train.on_next = [&] {  // bad, good, bad, good
    std::vector<float> bias(kClasses, batch++ % 2 == 0 ? std::nanf("") : 0.0F);
    bench.trainer->state().write("fc.bias", bias);
  };
  EXPECT_TRUE(bench.trainer->run(bench.stop));
  EXPECT_EQ(bench.trainer->summary("finished", "").skipped_steps, 2);
}

TEST(Trainer, AnEpochMustHoldAWholeStep) {
  Config config = small();
  config.optimizer.accumulate = 2;
  EXPECT_THROW(Bench bench(config, 4), UsageError);
}

TEST(Trainer, LearnsWithLarsAndNesterov) {
  for (const bool lars : {false, true}) {
    Config config = small();
    config.schedule.steps = 8;
    config.optimizer.name = lars ? "lars" : "sgd";
    config.optimizer.nesterov = !lars;
    config.optimizer.lr = lars ? 2.0 : 0.02;  // LARS scales it by the trust coefficient
    Bench bench(config);
    bench.trainer->run(bench.stop);
    EXPECT_LT(bench.records.steps.back().loss, bench.records.steps.front().loss) << config.optimizer.name;
  }
}

// A batch that a device decoded: each row has its number in every pixel.
class NumberedRows final : public backend::DeviceImages {
 public:
  int rows() const override { return 4; }
  int size() const override { return 3; }
  void read(int row, std::span<std::uint8_t> pixels) const override {
    std::ranges::fill(pixels, static_cast<std::uint8_t>(row));
  }
};

TEST(BatchPicture, ComesFromTheDeviceThatDecodedTheBatch) {
  const NumberedRows images;
  data::Batch batch;
  batch.device_images = &images;
  const metrics::Picture picture = batch_picture(batch, 4, 3, 0);
  ASSERT_EQ(picture.width, 8);  // two images and a gap of two pixels
  ASSERT_EQ(picture.height, 8);
  const auto at = [&](int x, int y) { return picture.rgb[static_cast<std::size_t>(y * 8 + x) * 3]; };
  EXPECT_EQ(at(0, 0), 0);
  EXPECT_EQ(at(7, 2), 1);
  EXPECT_EQ(at(2, 7), 2);
  EXPECT_EQ(at(5, 5), 3);
  EXPECT_EQ(at(3, 0), 255);
}

}  // namespace
}  // namespace redline::train
