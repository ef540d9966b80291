#include "backend/cuda/metrics_ring.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/clock.h"

namespace redline::backend::cuda {

DeviceClock::DeviceClock() {
  constexpr int kReadings = 20;  // the first load the kernel and wake the device
  const Stream stream = make_stream();
  const DeviceMemory memory(sizeof(RunRecord));
  auto* record = reinterpret_cast<RunRecord*>(memory.data());
  std::int64_t fastest = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < kReadings; ++i) {
    const std::int64_t before = steady_nanoseconds();
    stamp(&record->begin, stream.get());
    wait_for(stream.get());
    const std::int64_t after = steady_nanoseconds();
    std::uint64_t read = 0;
    download(&read, &record->begin, sizeof read);
    if (after - before >= fastest) continue;
    fastest = after - before;
    offset_ = before + fastest / 2 - static_cast<std::int64_t>(read);
  }
}

void DeviceClock::observe(std::uint64_t begin, std::uint64_t end, Time launched, Time heard) {
  offset_ = std::max(offset_, steady_nanoseconds(launched) - static_cast<std::int64_t>(begin));
  offset_ = std::min(offset_, steady_nanoseconds(heard) - static_cast<std::int64_t>(end));
}

DeviceClock::Time DeviceClock::on_host(std::uint64_t nanoseconds) const {
  const std::chrono::nanoseconds since(static_cast<std::int64_t>(nanoseconds) + offset_);
  return Time(std::chrono::duration_cast<Time::duration>(since));
}

void MetricsRing::request(const RunRecord* from, Metrics::Time launched, cudaStream_t stream) {
  if (spare_.empty())
    spare_.push_back({PinnedMemory(sizeof(RunRecord)), make_event(/*timed=*/false, /*sleeps=*/true), {}});
  Slot slot = std::move(spare_.back());
  spare_.pop_back();
  slot.launched = launched;
  copy_async(slot.record.data(), from, sizeof *from, stream);
  record(slot.arrived, stream);
  asked_.push_back(std::move(slot));
}

bool MetricsRing::ready() const { return asked_.empty() || has_come(asked_.front().arrived); }

Metrics MetricsRing::metrics_of(const Slot& slot) {
  RunRecord record;
  std::memcpy(&record, slot.record.data(), sizeof record);
  Metrics metrics;
  metrics.sums = graph::loss_sums(record.loss);
  std::ranges::copy(record.check, metrics.check.begin());
  clock_->observe(record.begin, record.end, slot.launched, std::chrono::steady_clock::now());
  metrics.begin = clock_->on_host(record.begin);
  metrics.end = clock_->on_host(record.end);
  metrics.exposed = std::chrono::nanoseconds(record.exposed - std::exchange(exposed_, record.exposed));
  return metrics;
}

std::optional<Metrics> MetricsRing::take(bool wait) {
  if (asked_.empty()) return {};
  Slot& oldest = asked_.front();
  if (wait)
    wait_for(oldest.arrived);
  else if (!ready())
    return {};
  const Metrics metrics = metrics_of(oldest);
  spare_.push_back(std::move(oldest));
  asked_.pop_front();
  return metrics;
}

}  // namespace redline::backend::cuda
