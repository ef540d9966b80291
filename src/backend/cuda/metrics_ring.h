// Numbers of past runs on their way to the host: copied after a run without waiting for it, and taken when
// they have arrived.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/device_clock.h"

namespace redline::backend::cuda {

class MetricsRing {
 public:
  explicit MetricsRing(std::shared_ptr<DeviceClock> clock) : clock_(std::move(clock)) {}

  // Copies what a record holds once all work on the stream so far is done. The host began to launch the run
  // that leaves it at `launched`.
  void request(const RunRecord* record, Metrics::Time launched, cudaStream_t stream);
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
