#include "backend/cuda/metrics_ring.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace redline::backend::cuda {

void MetricsRing::request(const RunRecord* record, Metrics::Time launched, cudaStream_t stream) {
  if (spare_.empty()) spare_.push_back({PinnedMemory(sizeof(RunRecord)), make_sleeping_event(), {}});
  Slot slot = std::move(spare_.back());
  spare_.pop_back();
  slot.launched = launched;
  check_cuda(cudaMemcpyAsync(slot.record.data(), record, sizeof *record, cudaMemcpyDeviceToHost, stream),
             "reading metrics");
  check_cuda(cudaEventRecord(slot.arrived.get(), stream), "marking metrics");
  asked_.push_back(std::move(slot));
}

bool MetricsRing::ready() const {
  if (asked_.empty()) return true;
  const cudaError_t state = cudaEventQuery(asked_.front().arrived.get());
  if (state != cudaErrorNotReady) check_cuda(state, "asking for a step");
  return state == cudaSuccess;
}

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
    check_cuda(cudaEventSynchronize(oldest.arrived.get()), "waiting for a step");
  else if (!ready())
    return {};
  const Metrics metrics = metrics_of(oldest);
  spare_.push_back(std::move(oldest));
  asked_.pop_front();
  return metrics;
}

}  // namespace redline::backend::cuda
