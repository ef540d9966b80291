#include "backend/cuda/inputs.h"

#include <utility>

namespace redline::backend::cuda {

InputSlots::InputSlots(std::size_t bytes, InputCopy method) : copy_(method, bytes) {
  for (Slot& slot : slots_) slot = {DeviceMemory(bytes), make_event(false), make_event(false)};
}

void InputSlots::write(const void* data, std::size_t bytes, std::byte* target, cudaStream_t copies,
                       cudaStream_t compute, Lease lease) {
  const auto wait_for_last = [this] {
    check_cuda(cudaEventSynchronize(last_arrived()), "waiting for an input");
  };
  if (lease_) {
    wait_for_last();
    lease_.reset();
  }
  Slot& slot = slots_[next_];
  next_ = 1 - next_;
  check_cuda(cudaStreamWaitEvent(copies, slot.taken.get()), "ordering copies");
  const bool reading = copy_.start(slot.staging.data(), data, bytes, copies);
  check_cuda(cudaEventRecord(slot.arrived.get(), copies), "marking an input");
  check_cuda(cudaStreamWaitEvent(compute, slot.arrived.get()), "ordering an input");
  check_cuda(cudaMemcpyAsync(target, slot.staging.data(), bytes, cudaMemcpyDeviceToDevice, compute),
             "placing an input");
  check_cuda(cudaEventRecord(slot.taken.get(), compute), "marking an input");
  if (!reading) return;
  if (lease)
    lease_ = std::move(lease);
  else
    wait_for_last();
}

void InputSlots::give_back_read() {
  if (!lease_) return;
  const cudaError_t state = cudaEventQuery(last_arrived());
  if (state == cudaErrorNotReady) return;
  check_cuda(state, "asking for an input");
  lease_.reset();
}

}  // namespace redline::backend::cuda
