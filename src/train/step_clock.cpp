#include "train/step_clock.h"

#include <algorithm>

#include "base/error.h"

namespace redline::train {
namespace {

double seconds(StepClock::Time begin, StepClock::Time end) {
  return std::max(0.0, std::chrono::duration<double>(end - begin).count());
}

double& entry(metrics::Gap& gap, Cause cause) {
  switch (cause) {
    case Cause::data:
      return gap.data;
    case Cause::exchange:
      return gap.exchange;
    case Cause::evaluation:
      return gap.evaluation;
    case Cause::checkpoint:
      return gap.checkpoint;
  }
  return gap.host;
}

}  // namespace

Spent& Spent::operator+=(const Spent& other) {
  seconds += other.seconds;
  gap += other.gap;
  return *this;
}

void StepClock::start(Time now) {
  started_ = true;
  last_end_ = now;
}

void StepClock::begin(Cause cause, Time now) {
  if (depth_++ == 0) open_ = Interval{cause, now, now};
}

void StepClock::end(Time now) {
  check(depth_ > 0, "a span ends that did not begin");
  if (--depth_ > 0) return;
  open_->end = now;
  intervals_.push_back(*open_);
  open_.reset();
}

void StepClock::charge(Time begin, Time end, metrics::Gap& gap) const {
  double rest = seconds(begin, end);
  for (const Interval& interval : intervals_) {
    const double shared = seconds(std::max(begin, interval.begin), std::min(end, interval.end));
    entry(gap, interval.cause) += shared;
    rest -= shared;
  }
  gap.host += std::max(0.0, rest);
}

void StepClock::forget_until(Time time) {
  while (!intervals_.empty() && intervals_.front().end <= time) intervals_.pop_front();
}

Spent StepClock::ran(Time begin, Time end) {
  check(!launches_.empty(), "the device did work that it was not given");
  const Time launch = launches_.front();
  launches_.pop_front();
  begin = std::max(begin, last_end_);  // the clocks agree to microseconds only
  end = std::max(end, begin);
  Spent part;
  part.seconds = seconds(begin, end);
  if (launch >= begin) {
    charge(last_end_, begin, part.gap);
  } else {
    const Time had_work = std::max(launch, last_end_);
    charge(last_end_, had_work, part.gap);
    const Time late = std::min(begin, had_work + kLaunchLatency);
    part.gap.host += seconds(had_work, late);
    const bool copied = std::ranges::any_of(intervals_, [&](const Interval& interval) {
      return interval.cause == Cause::checkpoint && interval.begin < launch;
    });
    (copied ? part.gap.checkpoint : part.gap.data) += seconds(late, begin);
  }
  last_end_ = end;
  forget_until(end);
  total_ += part;
  return part;
}

Spent StepClock::total(Time now) const {
  Spent all = total_;
  if (started_) charge(last_end_, std::max(now, last_end_), all.gap);
  return all;
}

}  // namespace redline::train
