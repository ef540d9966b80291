// An input that the host writes while the device still computes on the one before: two staging buffers, used
// in turn and filled on a side stream.
#pragma once

#include <cstddef>

#include "backend/cuda/host_copy.h"
#include "base/lease.h"

namespace redline::backend::cuda {

class InputSlots {
 public:
  InputSlots(std::size_t bytes, InputCopy method);

  // Puts the copy from `data` to `target` on the streams: `copies` brings it to the device, `compute` takes
  // it from there once what runs before is done. Holds the lease while the device may read `data`, and waits
  // for the data of the write before; without a lease, `data` has been read when this returns.
  void write(const void* data, std::size_t bytes, std::byte* target, cudaStream_t copies,
             cudaStream_t compute, Lease lease);
  // Lets go of the lease if the device has read its data. Does not wait.
  void give_back_read();

  std::size_t device_bytes() const { return slots_[0].staging.size() + slots_[1].staging.size(); }

 private:
  struct Slot {
    DeviceMemory staging;
    Event arrived, taken;
  };
  cudaEvent_t last_arrived() const { return slots_[1 - next_].arrived.get(); }

  HostCopy copy_;
  Slot slots_[2];
  int next_ = 0;
  Lease lease_;  // on what the last write may still read
};

}  // namespace redline::backend::cuda
