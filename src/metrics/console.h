// What a person sees during a run: one live line on a terminal, plain lines elsewhere, and a closing summary.
#pragma once

#include <cstdio>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/live_line.h"
#include "metrics/recorder.h"

namespace redline::metrics {

struct ConsoleOptions {
  std::FILE* out = stdout;                   // borrowed
  bool live = false;                         // out is a terminal: redraw one line
  bool quiet = false;                        // only the closing summary
  int log_every = 10;                        // steps between plain lines, whose means are over as many steps
  std::function<std::string()> device = {};  // a few words on what the device is doing; may be empty
};

// Whether a target was reached, and when.
std::string target_text(const Target& target);

// Never fails: losing the console does not stop a run.
class ConsoleSink final : public Sink {
 public:
  explicit ConsoleSink(const ConsoleOptions& options) : options_(options), live_(options.out) {}

  void begin(const RunInfo& info) override;
  void step(const Step& step) override;
  void evaluating(std::int64_t done, std::int64_t total) override;
  void evaluation(const Evaluation& evaluation) override;
  void notice(const Notice& notice) override;
  void end(const End& end) override;

 private:
  // Counts warnings of one kind. Whoever raises them also logs them.
  struct Warnings {
    std::int64_t count = 0, last = 0;  // last: step of the last
    void add(std::int64_t step) { ++count, last = step; }
  };

  // Steps that count for speed: all of this process except its first, which warms up. A report counts the
  // same.
  struct Timed {
    double steps = 0, seconds = 0, samples = 0;
    double data = 0, ranks = 0;  // of the seconds, waiting for data and for other ranks
  };

  std::string progress_line() const;
  double seconds_left() const;
  void line(const std::string& text);  // in place of the live line
  bool due();                          // limits redraws of the live line to a few per second

  ConsoleOptions options_;
  RunInfo info_;
  std::deque<Step> window_;              // the last steps
  std::vector<Evaluation> evaluations_;  // the last of each set of weights
  std::vector<Notice> findings_;         // shown at the end
  Warnings loss_spikes_, stragglers_;
  std::int64_t first_step_ = 0;  // of this process
  std::optional<Timed> timed_;   // empty before the first step
  double pace_ = 0;              // seconds a step, of the timed steps: a mean that forgets old ones
  double evaluation_seconds_ = 0;
  std::int64_t skipped_ = 0;
  LiveLine live_;
  std::optional<Stopwatch> since_drawn_;
};

}  // namespace redline::metrics
