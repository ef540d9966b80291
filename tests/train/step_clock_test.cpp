// What a step's time is made of, from times that are given, so that every answer is known.
#include "train/step_clock.h"

#include <gtest/gtest.h>

namespace redline::train {
namespace {

using std::chrono::milliseconds;

// A moment of a made-up run, in milliseconds.
StepClock::Time at(double ms) {
  return StepClock::Time{} + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                 std::chrono::duration<double, std::milli>(1000 + ms));
}

double sum(const Spent& part) { return 1e3 * part.total(); }

// The host is at `cause` for a while.
void spend(StepClock& clock, Cause cause, double begin, double end) {
  clock.begin(cause, at(begin));
  clock.end(at(end));
}

TEST(StepClock, AStepTakesWhatTheDeviceNeededAndTheGapIsTheRest) {
  StepClock clock;
  clock.start(at(0));
  clock.launched(at(3));
  const Spent first = clock.ran(at(3), at(13));
  EXPECT_NEAR(first.seconds, 0.010, 1e-12);
  EXPECT_NEAR(first.gap.host, 0.003, 1e-12);
  EXPECT_NEAR(first.gap.total(), 0.003, 1e-12);
}

TEST(StepClock, AHostThatRunsAheadLeavesNoGapWhateverItWaitsFor) {
  StepClock clock;
  clock.start(at(0));
  clock.launched(at(0));
  spend(clock, Cause::data, 1, 9);  // while the first step runs
  clock.launched(at(9));
  clock.ran(at(0), at(10));
  const Spent second = clock.ran(at(10), at(20));
  EXPECT_EQ(second.gap.total(), 0);
  EXPECT_NEAR(second.seconds, 0.010, 1e-12);
}

TEST(StepClock, OnlyTheIdlePartOfAWaitForDataIsAGap) {
  StepClock clock;
  clock.start(at(0));
  clock.launched(at(0));
  spend(clock, Cause::data, 4, 16);
  clock.launched(at(17));
  clock.ran(at(0), at(10));
  const Spent second = clock.ran(at(17), at(27));
  EXPECT_NEAR(second.gap.data, 0.006, 1e-12);
  EXPECT_NEAR(second.gap.host, 0.001, 1e-12);
}

TEST(StepClock, WorkThatWaitsOnTheDeviceForItsBatchWaitsForData) {
  StepClock clock;
  clock.start(at(0));
  clock.launched(at(0));
  clock.launched(at(5));
  clock.ran(at(0), at(10));
  const Spent second = clock.ran(at(14), at(24));  // launched long ago, its images came late
  EXPECT_NEAR(second.gap.data, 0.004 - 20e-6, 1e-12);
  EXPECT_NEAR(second.gap.host, 20e-6, 1e-12);
}

TEST(StepClock, ShortGapsBetweenStepsAreTheLaunch) {
  StepClock clock;
  clock.start(at(0));
  clock.launched(at(0));
  clock.launched(at(5));
  clock.ran(at(0), at(10));
  const Spent second = clock.ran(at(10.008), at(20));
  EXPECT_EQ(second.gap.data, 0);
  EXPECT_NEAR(second.gap.host, 8e-6, 1e-9);
}

TEST(StepClock, ALaunchThatIsToldLateMakesNoGapLonger) {
  StepClock clock;
  clock.start(at(0));
  clock.launched(at(0));
  clock.ran(at(0), at(10));
  clock.launched(at(13));
  const Spent second = clock.ran(at(12), at(20));  // the clocks are off by a millisecond
  EXPECT_NEAR(second.gap.total(), 0.002, 1e-12);
  EXPECT_NEAR(second.seconds, 0.008, 1e-12);
}

TEST(StepClock, RanksThatWaitForEachOtherBetweenStepsExchange) {
  StepClock clock;
  clock.start(at(0));
  clock.launched(at(0));
  clock.ran(at(0), at(10));
  spend(clock, Cause::exchange, 10, 14);
  clock.launched(at(14));
  const Spent second = clock.ran(at(14), at(20));
  EXPECT_NEAR(second.gap.exchange, 0.004, 1e-12);
  EXPECT_NEAR(second.gap.total(), 0.004, 1e-12);
}

TEST(StepClock, EvaluationsAndCheckpointsHaveLinesOfTheirOwn) {
  StepClock clock;
  clock.start(at(0));
  clock.launched(at(0));
  clock.ran(at(0), at(10));
  clock.begin(Cause::evaluation, at(10));
  spend(clock, Cause::exchange, 20, 25);  // a part of the evaluation
  clock.end(at(40));
  spend(clock, Cause::checkpoint, 40, 45);
  clock.launched(at(46));
  const Spent second = clock.ran(at(49), at(59));  // the copy of the state is still under way
  EXPECT_NEAR(second.gap.evaluation, 0.030, 1e-12);
  EXPECT_EQ(second.gap.exchange, 0);
  EXPECT_NEAR(second.gap.checkpoint, 0.005 + 0.003 - 20e-6, 1e-12);
  EXPECT_NEAR(second.gap.host, 0.001 + 20e-6, 1e-12);
  EXPECT_EQ(second.gap.data, 0);
}

TEST(StepClock, WhatWentBeforeALaunchDoesNotExplainALaterOne) {
  StepClock clock;
  clock.start(at(0));
  clock.launched(at(0));
  clock.ran(at(0), at(10));
  spend(clock, Cause::checkpoint, 10, 12);
  clock.launched(at(12));
  clock.ran(at(12), at(20));
  clock.launched(at(15));
  const Spent third = clock.ran(at(25), at(30));
  EXPECT_EQ(third.gap.checkpoint, 0);
  EXPECT_GT(third.gap.data, 0.0049);
}

TEST(StepClock, ACheckpointThatComesAfterALaunchDoesNotDelayIt) {
  StepClock clock;
  clock.start(at(0));
  clock.launched(at(0));
  clock.ran(at(0), at(10));
  clock.launched(at(12));
  spend(clock, Cause::checkpoint, 13, 40);
  const Spent second = clock.ran(at(16), at(30));  // it waited for its batch
  EXPECT_EQ(second.gap.checkpoint, 0);
  EXPECT_NEAR(second.gap.data, 0.004 - 20e-6, 1e-12);
  EXPECT_NEAR(second.gap.host, 0.002 + 20e-6, 1e-12);
}

TEST(StepClock, StepsAndGapsAddUpToTheTimeOfTheRun) {
  StepClock clock;
  clock.go_on({5, {1, 0, 0, 2, 0}});
  EXPECT_EQ(sum(clock.total(at(0))), 8000) << "nothing passes before it starts";
  clock.start(at(0));
  double steps = 0;
  for (int i = 0; i < 100; ++i) {
    const double begin = 10.0 * i;
    spend(clock, i % 7 == 0 ? Cause::evaluation : Cause::data, begin, begin + i % 5);
    clock.launched(at(begin + i % 5 + 0.25));
    steps += sum(clock.ran(at(begin + i % 5 + 0.5), at(begin + 9)));
  }
  spend(clock, Cause::evaluation, 1000, 1500);  // after the last step
  EXPECT_NEAR(steps, 999, 1e-6);
  EXPECT_NEAR(sum(clock.total()), 999 + 8000, 1e-6);
  const Spent all = clock.total(at(1600));
  EXPECT_NEAR(sum(all), 1600 + 8000, 1e-6);
  EXPECT_GT(all.gap.evaluation, 2.5);
}

TEST(StepClock, ClocksThatDisagreeMakeNoNegativeTimes) {
  StepClock clock;
  clock.start(at(0));
  clock.launched(at(0));
  clock.launched(at(1));
  clock.ran(at(0), at(10));
  const Spent second = clock.ran(at(9.99), at(20));
  EXPECT_EQ(second.gap.total(), 0);
  EXPECT_NEAR(second.seconds, 0.010, 1e-12);
  clock.launched(at(19));
  EXPECT_EQ(clock.ran(at(19.98), at(19.99)).total(), 0) << "all of it before the end of the step before";
  clock.launched(at(20));
  EXPECT_NEAR(sum(clock.ran(at(20), at(30))), 10, 1e-9) << "no time is counted twice";
  EXPECT_NEAR(sum(clock.total()), 30, 1e-9);
}

}  // namespace
}  // namespace redline::train
