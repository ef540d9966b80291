#include "metrics/recorder.h"

#include <memory>
#include <stdexcept>

#include <gtest/gtest.h>

namespace redline::metrics {
namespace {

class Counting final : public Sink {
 public:
  Counting(int& ends, bool fails) : ends_(ends), fails_(fails) {}
  void end(const End&) override {
    ++ends_;
    if (fails_) throw std::runtime_error("cannot end");
  }

 private:
  int& ends_;
  bool fails_;
};

TEST(Recorder, EverySinkHearsTheEndAndTheFailureIsThrown) {
  int ends = 0;
  Recorder recorder;
  recorder.add(std::make_unique<Counting>(ends, true));
  recorder.add(std::make_unique<Counting>(ends, false));
  EXPECT_THROW(recorder.end({}), std::runtime_error);
  EXPECT_EQ(ends, 2);
}

TEST(Records, GapsAddUpByCause) {
  Gap sum{1, 2, 4, 8, 16};
  sum += Gap{100, 200, 400, 800, 1600};
  EXPECT_EQ(sum.data, 101);
  EXPECT_EQ(sum.host, 202);
  EXPECT_EQ(sum.exchange, 404);
  EXPECT_EQ(sum.evaluation, 808);
  EXPECT_EQ(sum.checkpoint, 1616);
  EXPECT_EQ(sum.total(), 101 + 202 + 404 + 808 + 1616);
}

TEST(Records, AStepTakesItsStallsAndNotItsEvaluation) {
  Step step;
  step.samples = 64;
  step.seconds = 1;
  step.gap = {0.5, 0.25, 0.125, 50, 0.125};
  EXPECT_EQ(step.training_seconds(), 2);
  EXPECT_EQ(step.images_per_second(), 32);
  EXPECT_EQ(step.data_wait(), 0.25);
  step.seconds = 0;
  step.gap = {3, 0, 0, 0, 0};
  EXPECT_EQ(step.data_wait(), 1) << "never more than all of the time";
}

}  // namespace
}  // namespace redline::metrics
