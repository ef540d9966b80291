// Where the time of a run goes: into steps, by the clock of the device that runs them, and into the gaps
// between them, by what the device waited for.
//
// The host reports what it is doing (Span) and when it launches work on the device (launched); the device
// reports when that work ran (ran), a few steps later. A gap is the time between the end of one piece of work
// and the beginning of the next. Until the launch of the next one, the device waited for what the host was
// doing; after it, for what the work itself needs: a batch on its way to the device, or a copy of the state
// for a checkpoint.
#pragma once

#include <chrono>
#include <deque>
#include <optional>

#include "backend/backend.h"
#include "metrics/records.h"

namespace redline::train {

// Activities of the host that count as separate causes.
enum class Cause { data, exchange, evaluation, checkpoint };

// The time of a part of a run.
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
  // A device starts work that is ready within this time.
  static constexpr std::chrono::microseconds kLaunchLatency{20};

  // Before start(): adds the time of an earlier part of the run.
  void go_on(const Spent& before) { total_ = before; }
  void start(Time now);

  // The host does `cause` from now until end(). A span within another counts as the outer one.
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

  // One more piece of work was launched on the device.
  void launched(Time now) { launches_.push_back(now); }

  // The device has finished the oldest launched piece of work.
  Spent ran(Time begin, Time end);

  // Of the whole run, including what was before start(): until the end of the last work that ran(); and until
  // now, including the gap since then.
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
