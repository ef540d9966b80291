#include "backend/cuda/device_clock.h"

#include <algorithm>
#include <limits>

#include "backend/cuda/device.h"

namespace redline::backend::cuda {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t nanoseconds(Metrics::Time time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

DeviceClock::DeviceClock() {
  constexpr int kReadings = 20;  // the first ones load the kernel and wake the device
  const Stream stream = make_stream();
  const DeviceMemory memory(sizeof(RunRecord));
  auto* record = reinterpret_cast<RunRecord*>(memory.data());
  std::int64_t fastest = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < kReadings; ++i) {
    const std::int64_t before = nanoseconds(Clock::now());
    begin_run(record, stream.get());
    check_cuda(cudaStreamSynchronize(stream.get()), "reading the device's clock");
    const std::int64_t after = nanoseconds(Clock::now());
    std::uint64_t read = 0;
    check_cuda(cudaMemcpy(&read, &record->begin, sizeof read, cudaMemcpyDeviceToHost),
               "reading the device's clock");
    if (after - before >= fastest) continue;
    fastest = after - before;
    offset_ = before + fastest / 2 - static_cast<std::int64_t>(read);
  }
}

void DeviceClock::observe(std::uint64_t begin, std::uint64_t end, Time launched, Time heard) {
  offset_ = std::max(offset_, nanoseconds(launched) - static_cast<std::int64_t>(begin));
  offset_ = std::min(offset_, nanoseconds(heard) - static_cast<std::int64_t>(end));
}

DeviceClock::Time DeviceClock::on_host(std::uint64_t nanoseconds) const {
  const std::chrono::nanoseconds since(static_cast<std::int64_t>(nanoseconds) + offset_);
  return Time(std::chrono::duration_cast<Clock::duration>(since));
}

}  // namespace redline::backend::cuda
