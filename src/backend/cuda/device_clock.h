// The device's clock (%globaltimer) on the host's: how far apart they are.
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace redline::backend::cuda {

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

}  // namespace redline::backend::cuda
