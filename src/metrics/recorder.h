// The recorder: the trainer reports each record once, and every sink writes it in its own format.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "metrics/records.h"

namespace redline::metrics {

// Writes records in one format. Called from the training thread, in the order begin, steps and evaluations,
// end. A sink that cannot write throws IoError: a run without its numbers is not worth its time.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void begin(const RunInfo&) {}
  virtual void epoch(std::int64_t /*epoch*/) {}  // from 0; its first batch, or the first one left, comes next
  virtual void step(const Step&) {}
  virtual void evaluating(std::int64_t /*done*/, std::int64_t /*total*/) {}  // samples; for progress only
  virtual void evaluation(const Evaluation&) {}
  virtual void picture(const Picture&) {}
  virtual void histogram(const Histogram&) {}
  virtual void checkpoint(const Checkpoint&) {}
  virtual void notice(const Notice&) {}
  // Passes all records so far to the operating system: a checkpoint is about to be taken, and a run resumed
  // from it must find them.
  virtual void flush() {}
  virtual void end(const End&) {}
};

class Recorder {
 public:
  void add(std::unique_ptr<Sink> sink) { sinks_.push_back(std::move(sink)); }

  void begin(const RunInfo& info);
  void epoch(std::int64_t epoch);
  void step(const Step& step);
  void evaluating(std::int64_t done, std::int64_t total);
  void evaluation(const Evaluation& evaluation);
  void picture(const Picture& picture);
  void histogram(const Histogram& histogram);
  void checkpoint(const Checkpoint& checkpoint);
  void notice(const Notice& notice);
  void flush();
  // Every sink gets the end, even if an earlier one fails; the first failure is thrown afterwards.
  void end(const End& end);

 private:
  std::vector<std::unique_ptr<Sink>> sinks_;
};

}  // namespace redline::metrics
