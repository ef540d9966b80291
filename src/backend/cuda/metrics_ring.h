// The metrics of past runs on their way to the host: copied after each run without waiting, and taken when
// they have arrived. Also the device's clock, from which the times of runs come.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device.h"

namespace redline::backend::cuda {

// Converts times of the device's clock (%globaltimer) to the host's clock.
class DeviceClock {
 public:
  using Time = Metrics::Time;

  // Reads the clock of the idle device a few times and keeps the reading with the shortest round trip: its
  // error is less than half of that, a few microseconds.
  DeviceClock();

  // Corrects for the drift between the clocks: a run began after the host launched it (`launched`), and ended
  // before the host knew of its end (`heard`).
  void observe(std::uint64_t begin, std::uint64_t end, Time launched, Time heard);

  Time on_host(std::uint64_t nanoseconds) const;

 private:
  std::int64_t offset_ = 0;  // nanoseconds from the device's clock to the host's
};

class MetricsRing {
 public:
  explicit MetricsRing(std::shared_ptr<DeviceClock> clock) : clock_(std::move(clock)) {}

  // Queues a copy of the record behind the work on the stream so far. `launched`: when the host began to
  // launch the run that fills it.
  void request(const RunRecord* from, Metrics::Time launched, cudaStream_t stream);
  // Whether take() has nothing to wait for.
  bool ready() const;
  // As Executable::take_metrics.
  std::optional<Metrics> take(bool wait);

 private:
  struct Slot {
    PinnedMemory record;  // one RunRecord
    Event arrived;
    Metrics::Time launched;
  };
  Metrics metrics_of(const Slot& slot);

  std::shared_ptr<DeviceClock> clock_;
  std::deque<Slot> asked_;     // oldest first
  std::vector<Slot> spare_;    // used again: a step allocates nothing
  std::uint64_t exposed_ = 0;  // of all runs until the last one taken
};

}  // namespace redline::backend::cuda
