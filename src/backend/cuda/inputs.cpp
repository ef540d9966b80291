#include "backend/cuda/inputs.h"

#include <cstring>

namespace redline::backend::cuda {
namespace {

bool is_page_locked(const void* memory) {
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, memory), "asking about an input");
  return attributes.type == cudaMemoryTypeHost;
}

}  // namespace

InputSlots::InputSlots(std::size_t bytes) {
  for (Slot& slot : slots_) slot = {{}, DeviceMemory(bytes), make_event(false), make_event(false)};
}

void InputSlots::write(const void* data, std::size_t bytes, std::byte* target, cudaStream_t copies,
                       cudaStream_t compute) {
  Slot& slot = slots_[next_];
  next_ = 1 - next_;
  reading_ = is_page_locked(data);
  if (!reading_) {
    check_cuda(cudaEventSynchronize(slot.arrived.get()), "waiting for an earlier input");
    if (slot.pinned.size() == 0) slot.pinned = PinnedMemory(bytes);
    std::memcpy(slot.pinned.data(), data, bytes);
    data = slot.pinned.data();
  }
  check_cuda(cudaStreamWaitEvent(copies, slot.taken.get()), "ordering copies");
  check_cuda(cudaMemcpyAsync(slot.staging.data(), data, bytes, cudaMemcpyHostToDevice, copies),
             "copying an input to the device");
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
