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

}  // namespace
}  // namespace redline::metrics
