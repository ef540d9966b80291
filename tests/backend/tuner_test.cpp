#include "backend/tuner.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/temporary_folder.h"

namespace redline::backend {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Candidates that take so many seconds, on a clock that goes forward as they run.
class FakeGpu {
 public:
  Question ask(const std::string& key, const std::vector<double>& seconds, double value = 1) {
    Question question{.key = key, .value = value};
    for (std::size_t i = 0; i < seconds.size(); ++i)
      question.candidates.push_back("engine " + std::to_string(i));
    question.time = [this, seconds, key](std::size_t candidate, double) {
      timed.push_back(key + std::to_string(candidate));
      if (seconds[candidate] < kNever) now += seconds[candidate];
      return seconds[candidate];
    };
    return question;
  }
  TuningRules rules(double seconds = kNever) {
    budget = seconds;
    return {&budget, [this] { return now; }, {}, {}};
  }

  double now = 100, budget = 0;
  std::vector<std::string> timed;
};

using Answers = std::vector<std::size_t>;

Answers taken(const std::vector<Question>& questions, Choices& choices, const TuningRules& rules) {
  Answers taken;
  for (const Answer& answer : backend::tune(questions, choices, rules)) taken.push_back(answer.candidate);
  return taken;
}

TEST(Tuner, TakesTheFastest) {
  FakeGpu gpu;
  Choices choices("");
  EXPECT_EQ(taken({gpu.ask("a", {3, 1, 2}), gpu.ask("b", {1, 2})}, choices, gpu.rules()), (Answers{1, 0}));
  EXPECT_EQ(choices.find("a"), "engine 1");
}

TEST(Tuner, LeavesOutWhatDoesNotRun) {
  FakeGpu gpu;
  Choices choices("");
  EXPECT_EQ(taken({gpu.ask("b", {kNever, kNever}), gpu.ask("a", {kNever, 2, kNever})}, choices, gpu.rules()),
            (Answers{0, 1}));
  EXPECT_TRUE(choices.find("a"));
  EXPECT_FALSE(choices.find("b")) << "an answer that is none is not remembered";
}

// cuDNN had no time to build all its plans.
TEST(Tuner, AsksAgainWhereCandidatesWereMissing) {
  FakeGpu gpu;
  Choices choices("");
  Question some = gpu.ask("a", {3, 2});
  some.complete = false;
  EXPECT_EQ(taken({some}, choices, gpu.rules()), (Answers{1}));
  EXPECT_FALSE(choices.find("a"));
  EXPECT_EQ(taken({gpu.ask("a", {3, 2, 1})}, choices, gpu.rules()), (Answers{2}));
  EXPECT_EQ(choices.find("a"), "engine 2");
}

TEST(Tuner, AsksOnceForAllQuestionsOfAKey) {
  FakeGpu gpu;
  Choices choices("");
  // Together they matter more than the other one.
  const std::vector<Question> questions = {gpu.ask("other", {2, 1}, 5), gpu.ask("a", {2, 1}, 3),
                                           gpu.ask("a", {2, 1}, 3)};
  EXPECT_EQ(taken(questions, choices, gpu.rules()), (Answers{1, 1, 1}));
  EXPECT_EQ(gpu.timed, (std::vector<std::string>{"a0", "a1", "other0", "other1"}));
}

TEST(Tuner, NamesAlternativesThatAreWorthComparing) {
  FakeGpu gpu;
  Choices choices("");
  const std::vector<Question> questions = {
      gpu.ask("small", {1, 1.05}, 0.001), gpu.ask("a", {1.2, 1.08, 1, 1.05, kNever}, 2),
      gpu.ask("clear", {1, 2}, 5), gpu.ask("a", {1.2, 1.08, 1, 1.05, kNever}, 2),
      gpu.ask("many", {1, 1, 1, 1, 1, 1, 1}, 1.5)};
  const std::vector<Alternatives> found =
      alternatives_of(questions, backend::tune(questions, choices, gpu.rules()));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].key, "a");
  EXPECT_EQ(found[0].questions, (Answers{1, 3}));
  EXPECT_EQ(found[0].candidates, (Answers{2, 3, 1})) << "the fastest first, then those at most 10% slower";
  EXPECT_EQ(found[0].names, (std::vector<std::string>{"engine 2", "engine 3", "engine 1"}));
  EXPECT_EQ(found[1].candidates, (Answers{0, 1, 2, 3}));
  // What is remembered was not timed.
  EXPECT_TRUE(alternatives_of(questions, backend::tune(questions, choices, gpu.rules())).empty());
}

TEST(Tuner, TimesAgainWhatItRemembersWhenAsked) {
  FakeGpu gpu;
  Choices choices("");
  taken({gpu.ask("a", {3, 1})}, choices, gpu.rules());
  TuningRules rules = gpu.rules();
  rules.again = true;
  EXPECT_EQ(taken({gpu.ask("a", {1, 3})}, choices, rules), (Answers{0}));
  EXPECT_EQ(choices.find("a"), "engine 0");
}

TEST(Tuner, TimesNothingWithoutABudget) {
  FakeGpu gpu;
  Choices choices("");
  EXPECT_EQ(taken({gpu.ask("a", {3, 1})}, choices, gpu.rules(0)), (Answers{0})) << "the first candidate";
  EXPECT_TRUE(gpu.timed.empty());
  EXPECT_FALSE(choices.find("a"));
}

TEST(Tuner, SpendsItsBudgetOnWhatMattersMost) {
  FakeGpu gpu;
  Choices choices("");
  const std::vector<Question> questions = {gpu.ask("small", {3, 1}, 1), gpu.ask("large", {3, 1}, 10),
                                           gpu.ask("middle", {3, 2, 1}, 5)};
  EXPECT_EQ(taken(questions, choices, gpu.rules(8)), (Answers{0, 1, 1}));
  EXPECT_EQ(gpu.timed, (std::vector<std::string>{"large0", "large1", "middle0", "middle1"}));
  EXPECT_LE(gpu.now, 100 + 8 + 3) << "the last one may have begun in time";
  EXPECT_TRUE(choices.find("large"));
  EXPECT_FALSE(choices.find("middle")) << "not all of its candidates were timed";
}

// As the plans of training and evaluation do, both of which are compiled before the first step.
TEST(Tuner, CallsShareABudget) {
  FakeGpu gpu;
  Choices choices("");
  const TuningRules rules = gpu.rules(9);
  taken({gpu.ask("a", {3, 1})}, choices, rules);
  EXPECT_EQ(gpu.budget, 9 - 4);
  EXPECT_EQ(taken({gpu.ask("b", {3, 1}), gpu.ask("c", {3, 2})}, choices, rules), (Answers{1, 0}));
  EXPECT_EQ(gpu.timed, (std::vector<std::string>{"a0", "a1", "b0", "b1", "c0"}));
  EXPECT_EQ(gpu.budget, 0);
  EXPECT_EQ(taken({gpu.ask("d", {3, 1})}, choices, rules), (Answers{0})) << "the first, not timed";
  EXPECT_EQ(gpu.timed.size(), 5U);
  gpu.budget = kNever;
  taken({gpu.ask("d", {3, 1})}, choices, rules);
  EXPECT_EQ(gpu.budget, kNever);
}

TEST(Tuner, GoesOnWhereAnEarlierRunHadToStop) {
  const TemporaryFolder folder;
  const std::string file = folder / "kernels.txt";
  FakeGpu gpu;
  const std::vector<Question> questions = {gpu.ask("a", {3, 1}, 2), gpu.ask("b", {3, 1}, 1)};
  Choices first(file);
  taken(questions, first, gpu.rules(4));
  gpu.timed.clear();
  Choices second(file);
  EXPECT_EQ(taken(questions, second, gpu.rules(4)), (Answers{1, 1}));
  EXPECT_EQ(gpu.timed, (std::vector<std::string>{"b0", "b1"}));
}

TEST(Tuner, RemembersNamesNotPositions) {
  const TemporaryFolder folder;
  FakeGpu gpu;
  {
    Choices choices(folder / "kernels.txt");
    taken({gpu.ask("a", {3, 1, 2})}, choices, gpu.rules());
  }
  gpu.timed.clear();
  Choices choices(folder / "kernels.txt");
  Question moved = gpu.ask("a", {9, 9, 9});
  moved.candidates = {"engine 1", "new", "engine 0"};
  EXPECT_EQ(taken({moved}, choices, gpu.rules()), (Answers{0}));
  Question gone = gpu.ask("a", {2, 1});
  gone.candidates = {"new", "newer"};
  EXPECT_TRUE(gpu.timed.empty());
  EXPECT_EQ(taken({gone}, choices, gpu.rules()), (Answers{1})) << "one that is gone is chosen anew";
}

TEST(Tuner, ReadsADamagedFileAsFarAsItGoes) {
  const TemporaryFolder folder;
  std::ofstream(folder / "kernels.txt") << "a engine 1\n\nb\nc";
  Choices choices(folder / "kernels.txt");
  EXPECT_EQ(choices.find("a"), "engine 1");
  EXPECT_FALSE(choices.find("c"));
}

TEST(Tuner, StopsWhenAsked) {
  FakeGpu gpu;
  Choices choices("");
  TuningRules rules = gpu.rules();
  rules.stop = [&] { return gpu.timed.size() >= 3; };
  EXPECT_EQ(taken({gpu.ask("a", {3, 1}), gpu.ask("b", {2, 1}), gpu.ask("c", {2, 1})}, choices, rules),
            (Answers{1, 0, 0}));
  EXPECT_EQ(gpu.timed.size(), 3U);
}

TEST(Tuner, SaysHowFarItIs) {
  FakeGpu gpu;
  Choices choices("");
  TuningRules rules = gpu.rules();
  std::vector<std::pair<std::int64_t, std::int64_t>> told;
  rules.progress = [&](std::int64_t answered, std::int64_t all) { told.emplace_back(answered, all); };
  taken({gpu.ask("a", {3, 1}), gpu.ask("only", {1}), gpu.ask("b", {2, 1})}, choices, rules);
  EXPECT_EQ(told, (std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 2}, {1, 2}, {2, 2}}));
  told.clear();
  taken({gpu.ask("a", {3, 1})}, choices, rules);
  EXPECT_TRUE(told.empty()) << "what is remembered needs no telling";
}

// Steps whose time is the sum of what their candidates take, with noise.
class FakeSteps {
 public:
  // `seconds`: what each candidate adds to the step.
  void ask(const std::string& key, const std::vector<double>& seconds) {
    Alternatives& one = all_.emplace_back(Alternatives{.key = key});
    for (std::size_t i = 0; i < seconds.size(); ++i) one.names.push_back("engine " + std::to_string(i));
    seconds_.push_back(seconds);
  }
  StepComparison compare(double budget = 1e9) {
    StepRules rules{.build = [this](const Answers& choice) { return build(choice); },
                    .seconds = budget,
                    .clock = [this] { return now; },
                    .stop = stop};
    return compare_in_step(all_, choices, rules);
  }

  double now = 0;
  double noise = 0,
         drift = 0;  // of a measurement, relative: standard deviation, and growth from one to the next
  int built = 0;
  std::function<bool()> stop = {};
  Choices choices{""};

 private:
  TimedStep build(const Answers& choice) {
    ++built;
    double step = 1;
    for (std::size_t q = 0; q < seconds_.size(); ++q) step += seconds_[q][choice[q]];
    return [this, step] {
      now += step;
      return step *
             std::exp(noise * normal_quantile((random_.next_u32() + 0.5) / 0x1p32) + drift * ++measured_);
    };
  }

  std::vector<Alternatives> all_;
  std::vector<std::vector<double>> seconds_;
  Random random_{7};
  int measured_ = 0;
};

TEST(TunerInStep, TakesWhatMakesTheStepFaster) {
  FakeSteps steps;
  steps.noise = 0.001;
  steps.ask("a", {0.02, 0, 0.03});
  steps.ask("b", {0, 0.01});
  steps.ask("c", {0.02, 0.01, 0});
  const StepComparison found = steps.compare();
  EXPECT_EQ(found.choice, (Answers{1, 0, 2}));
  EXPECT_EQ(steps.choices.find("a"), "engine 1");
  EXPECT_EQ(steps.choices.find("b"), "engine 0");
  ASSERT_TRUE(found.change);
  EXPECT_TRUE(found.change->beyond_noise());
  EXPECT_NEAR(found.change->change, 1.0 / 1.04 - 1, 0.002);
  EXPECT_NEAR(found.before, 1.04, 0.005);
  EXPECT_NEAR(found.after, 1, 0.005);
}

TEST(TunerInStep, KeepsTheChoiceWhereOnlyNoiseDiffers) {
  FakeSteps steps;
  steps.noise = 0.003;
  for (int i = 0; i < 300; ++i) steps.ask("a" + std::to_string(i), {0, 0});
  const StepComparison found = steps.compare();
  const auto exchanged = std::ranges::count(found.choice, 1U);
  EXPECT_LT(exchanged, 300 / 20) << "a two-sided test at 4%";
  EXPECT_FALSE(found.change && found.change->beyond_noise()) << "measured anew at the end";
}

TEST(TunerInStep, IsNotMisledByAGpuWhoseSpeedChanges) {
  for (const double drift : {-1e-4, 1e-4}) {
    FakeSteps steps;
    steps.drift = drift;
    for (int i = 0; i < 20; ++i) steps.ask("a" + std::to_string(i), {0, 0});
    EXPECT_EQ(steps.compare().choice, Answers(20, 0)) << drift;
  }
}

TEST(TunerInStep, ComparesWhatMattersMostWithinItsTime) {
  FakeSteps steps;
  steps.noise = 1e-4;
  steps.ask("large", {0.1, 0});
  steps.ask("small", {0.1, 0});
  EXPECT_EQ(steps.compare(25).choice, (Answers{1, 0}));
  EXPECT_FALSE(steps.choices.find("small"));
}

// Or the run would not have the speed that the comparison found.
TEST(TunerInStep, RemembersWhatItTookBeforeTheTimeWasUp) {
  FakeSteps steps;
  steps.noise = 1e-4;
  steps.ask("a", {0.1, 0, 0.1});
  const StepComparison found = steps.compare(20);
  EXPECT_EQ(found.choice, Answers{1});
  ASSERT_TRUE(found.change && found.change->beyond_noise());
  EXPECT_EQ(steps.choices.find("a"), "engine 1");
}

TEST(TunerInStep, LeavesStepsAloneThatAreTooLong) {
  FakeSteps steps;
  steps.ask("a", {0.1, 0});
  EXPECT_EQ(steps.compare(10).choice, Answers{0});
  EXPECT_EQ(steps.built, 1);
}

TEST(TunerInStep, StopsWhenAsked) {
  FakeSteps steps;
  steps.ask("a", {0.1, 0});
  steps.stop = [&] { return steps.now > 5; };
  const StepComparison found = steps.compare();
  EXPECT_TRUE(found.stopped);
  EXPECT_EQ(found.choice, Answers{0});
  EXPECT_LT(steps.now, 9);
  EXPECT_FALSE(found.change);
}

}  // namespace
}  // namespace redline::backend
