#include "backend/cuda/inputs.h"

namespace redline::backend::cuda {

InputSlots::InputSlots(std::size_t bytes, InputCopy way) : copy_(way, bytes) {
  for (Slot& slot : slots_) slot = {DeviceMemory(bytes), make_event(false), make_event(false)};
}

void InputSlots::write(const void* data, std::size_t bytes, std::byte* target, cudaStream_t copies,
                       cudaStream_t compute) {
  Slot& slot = slots_[next_];
  next_ = 1 - next_;
  check_cuda(cudaStreamWaitEvent(copies, slot.taken.get()), "ordering copies");
  reading_ = copy_.start(slot.staging.data(), data, bytes, copies);
  check_cuda(cudaEventRecord(slot.arrived.get(), copies), "marking an input");
  check_cuda(cudaStreamWaitEvent(compute, slot.arrived.get()), "ordering an input");
  check_cuda(cudaMemcpyAsync(target, slot.staging.data(), bytes, cudaMemcpyDeviceToDevice, compute),
             "placing an input");
  check_cuda(cudaEventRecord(slot.taken.get(), compute), "marking an input");
}

void InputSlots::read_out() const {
  if (reading_) check_cuda(cudaEventSynchronize(slots_[1 - next_].arrived.get()), "waiting for an input");
}

}  // namespace redline::backend::cuda
