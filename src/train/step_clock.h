// Where the time of a run goes: into steps, by the clock of the device that runs them, and into the gaps
// between them, by what the device waited for.
//
// The host says what it is at (Span) and when it has given the device work (launched); the device says when
// it did that work (ran), a few steps later. A gap is the time between the end of one piece of work and the
// beginning of the next. What the host was at until it launched the next one is what the device waited for;
// from then on it waited for what the work itself needs: the batch on its way to the device, or a copy of the
// state that a checkpoint takes.
#pragma once

#include <chrono>
#include <deque>
#include <optional>

#include "backend/backend.h"
#include "metrics/records.h"

namespace redline::train {

// What the host may be at that is a cause of its own.
enum class Cause { data, exchange, evaluation, checkpoint };

// What a part of a run took.
struct Spent {
  double seconds = 0;  // the device worked
  metrics::Gap gap;    // and stood still
  Spent& operator+=(const Spent& other);
  double total() const { return seconds + gap.total(); }
};

// One thread.
class StepClock {
 public:
  using Time = backend::Metrics::Time;
  // Given work that it has everything for, a device begins within this.
  static constexpr std::chrono::microseconds kLaunchLatency{20};

  // Before start(): training goes on after what it took before.
  void go_on(const Spent& before) { total_ = before; }
  void start(Time now);

  // The host is at `cause` from now until end(). Within another span it counts as that one.
  void begin(Cause cause, Time now);
  void end(Time now);
  class Span {
   public:
    Span(StepClock& clock, Cause cause) : clock_(clock) {
      clock_.begin(cause, std::chrono::steady_clock::now());
    }
    ~Span() { clock_.end(std::chrono::steady_clock::now()); }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    StepClock& clock_;
  };

  // The device has been given one more piece of work.
  void launched(Time now) { launches_.push_back(now); }

  // The device has done the oldest piece of work that it was given.
  Spent ran(Time begin, Time end);

  // All of the run, what was before start() included: until the end of the last work that ran(), and until
  // now, with the gap that lasts since then.
  const Spent& total() const { return total_; }
  Spent total(Time now) const;

 private:
  struct Interval {
    Cause cause;
    Time begin, end;
  };
  void charge(Time begin, Time end, metrics::Gap& gap) const;  // by what the host was at
  void forget_until(Time time);

  bool started_ = false;
  Time last_end_{};                 // of work, or start()
  std::deque<Time> launches_;       // oldest first, of work that has not run yet
  std::deque<Interval> intervals_;  // rising, none that ended before last_end_
  std::optional<Interval> open_;
  int depth_ = 0;  // of spans within open_
  Spent total_;
};

}  // namespace redline::train
