#include "backend/cuda/metrics_ring.h"

#include <cstring>
#include <new>
#include <utility>

namespace redline::backend::cuda {

void MetricsRing::request(const std::byte* loss, const std::byte* check, cudaStream_t stream) {
  if (spare_.empty()) {
    // Whoever waits sleeps: threads that decode need the cores.
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
               "making an event");
    spare_.push_back({PinnedMemory(sizeof(Metrics)), Event(event)});
  }
  Slot slot = std::move(spare_.back());
  spare_.pop_back();
  auto* values = new (slot.values.data()) Metrics;
  check_cuda(cudaMemcpyAsync(values->loss.data(), loss, sizeof values->loss, cudaMemcpyDeviceToHost, stream),
             "reading metrics");
  if (check != nullptr) {
    check_cuda(
        cudaMemcpyAsync(values->check.data(), check, sizeof values->check, cudaMemcpyDeviceToHost, stream),
        "reading metrics");
  }
  check_cuda(cudaEventRecord(slot.arrived.get(), stream), "marking metrics");
  asked_.push_back(std::move(slot));
}

bool MetricsRing::ready() const {
  if (asked_.empty()) return true;
  const cudaError_t state = cudaEventQuery(asked_.front().arrived.get());
  if (state != cudaErrorNotReady) check_cuda(state, "asking for a step");
  return state == cudaSuccess;
}

std::optional<Metrics> MetricsRing::take(bool wait) {
  if (asked_.empty()) return {};
  Slot& oldest = asked_.front();
  if (wait)
    check_cuda(cudaEventSynchronize(oldest.arrived.get()), "waiting for a step");
  else if (!ready())
    return {};
  Metrics values;
  std::memcpy(&values, oldest.values.data(), sizeof values);
  spare_.push_back(std::move(oldest));
  asked_.pop_front();
  return values;
}

}  // namespace redline::backend::cuda
