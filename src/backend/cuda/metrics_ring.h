// Numbers of past runs on their way to the host: copied after a run without waiting for it, and taken when
// they have arrived; and the device's clock, which tells when they ran.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device.h"

namespace redline::backend::cuda {

// The device's clock (%globaltimer) on the host's: how far apart they are.
class DeviceClock {
 public:
  using Time = Metrics::Time;

  // Reads the device's clock a few times, with nothing else under way, and keeps the reading that came back
  // fastest: its error is less than half of the round trip, some microseconds.
  DeviceClock();

  // A run that the host launched no earlier than `launched` and heard of by `heard`. The two clocks drift;
  // these bounds pull them together again.
  void observe(std::uint64_t begin, std::uint64_t end, Time launched, Time heard);

  Time on_host(std::uint64_t nanoseconds) const;

 private:
  std::int64_t offset_ = 0;  // nanoseconds from the device's clock to the host's
};

class MetricsRing {
 public:
  explicit MetricsRing(std::shared_ptr<DeviceClock> clock) : clock_(std::move(clock)) {}

  // Copies what a record holds once all work on the stream so far is done. The host began to launch the run
  // that leaves it at `launched`.
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
