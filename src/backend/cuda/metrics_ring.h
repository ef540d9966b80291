// Numbers of past steps on their way to the host: copied after a step without waiting for it, and taken when
// they have arrived.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device.h"

namespace redline::backend::cuda {

class MetricsRing {
 public:
  // Copies what a plan's metrics and check (may be null) hold once all work on the stream so far is done.
  void request(const std::byte* loss, const std::byte* check, cudaStream_t stream);
  // Whether take() has nothing to wait for.
  bool ready() const;
  // As Executable::take_metrics.
  std::optional<Metrics> take(bool wait);

 private:
  struct Slot {
    PinnedMemory values;  // one Metrics
    Event arrived;
  };
  std::deque<Slot> asked_;   // oldest first
  std::vector<Slot> spare_;  // used again: a step allocates nothing
};

}  // namespace redline::backend::cuda
