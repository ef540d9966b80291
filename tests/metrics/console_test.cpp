#include "metrics/console.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace redline::metrics {
namespace {

// Collects what a sink prints.
class Capture {
 public:
  Capture() : file_(std::tmpfile(), &std::fclose) {}
  std::FILE* stream() const { return file_.get(); }
  std::string text() const {
    std::string all;
    std::rewind(file_.get());
    for (int c = std::fgetc(file_.get()); c != EOF; c = std::fgetc(file_.get())) all += static_cast<char>(c);
    return all;
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    const std::string whole = text();
    for (std::size_t begin = 0; begin < whole.size();) {
      const std::size_t end = whole.find('\n', begin);
      all.push_back(whole.substr(begin, end - begin));
      begin = end + 1;
    }
    return all;
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

RunInfo info() {
  RunInfo run;
  run.model = "resnet18";
  run.parameters = 11689512;
  run.classes = 10;
  run.image_size = 64;
  run.dtype = "fp32";
  run.data = "pictures";
  run.train_samples = 12800;
  run.val_samples = 1000;
  run.device = "reference";
  run.batch_size = 64;
  run.steps_per_epoch = 10;
  run.total_steps = 20;
  run.folder = "runs/test";
  return run;
}

Step step(std::int64_t number, double loss) {
  Step record;
  record.step = number;
  record.epoch = (number - 1) / 10;
  record.loss = loss;
  record.top1 = 0.5;
  record.samples = 64;
  record.seconds = 0.40;
  record.gap.data = 0.05;
  record.gap.host = 0.05;
  record.gap.evaluation = 7;
  return record;
}

TEST(Console, PlainLinesGiveMeansOverTheWindow) {
  Capture capture;
  ConsoleSink sink({.out = capture.stream(), .live = false, .quiet = false, .log_every = 4});
  sink.begin(info());
  const std::size_t before = capture.lines().size();
  for (int i = 1; i <= 6; ++i) sink.step(step(i, i));
  const auto lines = capture.lines();
  ASSERT_EQ(lines.size(), before + 2);  // steps 1 and 4
  // Steps 1 to 4: mean loss 2.5; 64 images in 0.5 s; 10 % waiting; 16 steps of half a second left.
  EXPECT_EQ(lines.back(),
            "epoch 1/2  step 4/20  loss 2.5000  top-1 50.0%  128.0 images/s  wait 10.0%  left 0:08");
}

TEST(Console, TheFirstStepSaysNothingAboutSpeed) {
  Capture capture;
  ConsoleSink sink({.out = capture.stream(), .live = false, .quiet = false, .log_every = 2});
  sink.begin(info());
  Step slow = step(1, 1);  // caches are cold, memory is touched for the first time
  slow.seconds = 20;
  sink.step(slow);
  EXPECT_EQ(capture.lines().back(), "epoch 1/2  step 1/20  loss 1.0000  top-1 50.0%");
  sink.step(step(2, 1));
  EXPECT_EQ(capture.lines().back(),
            "epoch 1/2  step 2/20  loss 1.0000  top-1 50.0%  128.0 images/s  wait 10.0%  left 0:09");
}

TEST(Console, TheTimeLeftIsNotThatOfTheLastStepAlone) {
  Capture capture;
  ConsoleSink sink({.out = capture.stream(), .live = false, .quiet = false, .log_every = 1});
  RunInfo long_run = info();
  long_run.total_steps = 1000;
  sink.begin(long_run);
  for (int i = 1; i <= 400; ++i) {
    Step one = step(i, 1);
    one.seconds = i % 2 == 0 ? 0.1 : 1.7;  // a second on average, with the gap of a tenth
    sink.step(one);
  }
  EXPECT_NE(capture.lines().back().find("left 9:59"), std::string::npos) << capture.lines().back();
}

TEST(Console, TheTimeLeftCountsEvaluations) {
  Capture capture;
  ConsoleSink sink({.out = capture.stream(), .live = false, .quiet = false, .log_every = 5});
  sink.begin(info());
  for (int i = 1; i <= 10; ++i) sink.step(step(i, 1));
  Evaluation evaluation;
  evaluation.step = 10;
  evaluation.seconds = 30;
  for (const char* weights : {"model", "ema"}) {
    evaluation.weights = weights;
    sink.evaluation(evaluation);
  }
  for (int i = 11; i <= 15; ++i) sink.step(step(i, 1));
  // Five steps of half a second, and both evaluations once more: 62.5 s.
  EXPECT_NE(capture.lines().back().find("left 1:03"), std::string::npos) << capture.lines().back();
}

TEST(Console, SkippedStepsAreShownAndLeaveTheMeanAlone) {
  Capture capture;
  ConsoleSink sink({.out = capture.stream(), .live = false, .quiet = false, .log_every = 2});
  sink.begin(info());
  sink.step(step(1, 3));
  Step bad = step(2, std::nan(""));
  bad.skipped = true;
  sink.step(bad);
  EXPECT_NE(capture.lines().back().find("loss 3.0000"), std::string::npos) << capture.text();
  EXPECT_NE(capture.lines().back().find("skipped 1"), std::string::npos) << capture.text();
}

TEST(Console, LiveLineIsRedrawnInPlace) {
  Capture capture;
  ConsoleSink sink({.out = capture.stream(), .live = true, .quiet = false, .log_every = 4});
  sink.begin(info());
  const std::size_t before = capture.lines().size();
  sink.step(step(1, 1));
  const std::string drawn = capture.text();
  EXPECT_NE(drawn.find("\r\x1b[K"), std::string::npos);
  EXPECT_NE(drawn.back(), '\n');
  sink.evaluation({});
  EXPECT_EQ(capture.lines().size(), before + 1);  // the evaluation took the live line's place
}

TEST(Console, QuietShowsOnlyTheSummary) {
  Capture capture;
  ConsoleSink sink({.out = capture.stream(), .live = false, .quiet = true, .log_every = 1});
  sink.begin(info());
  sink.step(step(1, 1));
  Evaluation evaluation;
  evaluation.weights = "model";
  evaluation.top1 = 0.9125;
  sink.evaluation(evaluation);
  EXPECT_EQ(capture.text(), "");
  End end;
  end.reason = "finished";
  sink.end(end);
  EXPECT_NE(capture.text().find("top-1 91.25%"), std::string::npos) << capture.text();
  EXPECT_NE(capture.text().find("runs/test"), std::string::npos);
}

TEST(Console, SummaryNamesTheBestEvaluationWhenItWasNotTheLast) {
  Capture capture;
  ConsoleSink sink({.out = capture.stream(), .live = false, .quiet = false, .log_every = 1});
  sink.begin(info());
  Evaluation evaluation;
  evaluation.weights = "model";
  evaluation.top1 = 0.7;
  sink.evaluation(evaluation);
  End end;
  end.best = Best{"model", 0.8, 2};  // perhaps before the run was resumed
  sink.end(end);
  EXPECT_NE(capture.text().find("top-1 70.00%"), std::string::npos);
  EXPECT_NE(capture.text().find("(best top-1 80.00% after epoch 2)"), std::string::npos) << capture.text();
}

TEST(Console, TheEndTellsEnergyAndWhatDisturbedTheRun) {
  Capture capture;
  ConsoleSink sink({.out = capture.stream(), .live = false, .quiet = true, .log_every = 1});
  sink.begin(info());
  Step step;
  step.samples = 64;
  step.gap.evaluation = 40;
  for (const double seconds : {5.0, 1.5, 2.0}) {  // the first warms up
    step.seconds = seconds;
    step.gap.data = seconds == 1.5 ? 0.5 : 0;
    sink.step(step);
  }
  sink.notice({20, "bound", "the power limit sets the speed"});
  sink.notice({20, "disturbed", "other processes used 38.0% of the CPU time"});
  End end;
  end.reason = "finished";
  end.steps = 30;
  end.samples = 1920;
  end.energy_steps = 20;  // since the run was resumed
  end.energy_samples = 1280;
  end.energy_j = 2560;
  end.seconds = 100;
  sink.end(end);
  const std::string text = capture.text();
  EXPECT_NE(text.find("  energy    2.56 kJ: 128 J a step, 0.5 images/J\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  speed     32.0 images/s in training, 12.5% of the time waiting for data\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  bound     the power limit sets the speed\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  disturbed other processes used 38.0% of the CPU time\n"), std::string::npos) << text;
  Capture other;
  ConsoleSink quiet({.out = other.stream(), .live = false, .quiet = true, .log_every = 1});
  RunInfo resumed = info();
  resumed.resumed = Resumed{20, false};
  quiet.begin(resumed);
  quiet.step(step);
  quiet.end({});
  for (const char* word : {"speed", "energy", "bound", "disturbed", "warnings"})
    EXPECT_EQ(other.text().find(word), std::string::npos) << word;
}

TEST(Console, TheSpeedOfAResumedRunIsOfItsOwnSteps) {
  Capture capture;
  ConsoleSink sink({.out = capture.stream(), .live = false, .quiet = true, .log_every = 1});
  RunInfo resumed = info();
  resumed.resumed = Resumed{20, false};
  sink.begin(resumed);
  Step step;
  step.samples = 64;
  step.seconds = 2;
  sink.step(step);
  sink.step(step);
  End end;
  end.samples = 22 * 64;
  end.seconds = 100;
  sink.end(end);
  EXPECT_NE(capture.text().find("32.0 images/s in training since step 20, 0.0% of the time"),
            std::string::npos)
      << capture.text();
}

TEST(Console, WaitingForOtherRanksIsWithinStepsAndBetweenThem) {
  Capture capture;
  ConsoleSink sink({.out = capture.stream(), .live = false, .quiet = true, .log_every = 1});
  sink.begin(info());
  Step step;
  step.samples = 64;
  step.seconds = 1.5;
  step.communication_seconds = 0.3;
  step.gap.exchange = 0.5;
  sink.step(step);
  sink.step(step);
  End end;
  end.seconds = 4;
  end.ranks = "2 ranks";
  sink.end(end);
  EXPECT_NE(capture.text().find("  waiting   40.0% of the time for other ranks\n"), std::string::npos)
      << capture.text();
}

TEST(Console, RepeatedWarningsAreAddedUp) {
  Capture capture;
  ConsoleSink sink({.out = capture.stream(), .live = false, .quiet = true, .log_every = 1});
  sink.begin(info());
  for (int i = 1; i <= 34; ++i) sink.notice({10 * i, "loss_spike", "the loss jumped"});
  sink.notice({7, "straggler", "rank 3 is slow"});  // the log has said so
  sink.end({});
  const std::string text = capture.text();
  EXPECT_NE(text.find("  warnings  34 of a loss spike, the last at step 340\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("slow rank"), std::string::npos) << text;
}

TEST(Console, ALossWithLabelSmoothingIsNamedAsSuch) {
  Capture plain, smoothed;
  for (const auto& [capture, smoothing] : {std::pair{&plain, 0.0}, std::pair{&smoothed, 0.1}}) {
    ConsoleSink sink({.out = capture->stream(), .live = false, .quiet = false, .log_every = 1});
    RunInfo run = info();
    run.label_smoothing = smoothing;
    sink.begin(run);
    sink.step(step(1, 2));
  }
  EXPECT_EQ(plain.text().find("smooth"), std::string::npos);
  EXPECT_NE(smoothed.text().find("the training loss (label smoothing 0.1) is not comparable"),
            std::string::npos);
  EXPECT_NE(smoothed.text().find("  smoothed loss 2.0000"), std::string::npos) << smoothed.text();
}

TEST(Console, OneIsSingular) {
  Capture capture;
  ConsoleSink sink({.out = capture.stream(), .live = false, .quiet = false, .log_every = 1});
  RunInfo run = info();
  run.total_steps = run.steps_per_epoch = run.batch_size = 1;
  sink.begin(run);
  End end;
  end.reason = "finished";
  end.steps = end.samples = end.skipped_steps = 1;
  sink.end(end);
  const std::string text = capture.text();
  EXPECT_NE(text.find("1 step of 1 image, 1 step an epoch\n"), std::string::npos) << text;
  EXPECT_NE(text.find("finished: 1 step, 1 image in"), std::string::npos) << text;
  EXPECT_NE(text.find("skipped   1 step whose"), std::string::npos) << text;
}

}  // namespace
}  // namespace redline::metrics
