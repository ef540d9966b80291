// An input that the host writes while the device still computes on the one before: two staging buffers in
// turn, filled on a stream of their own.
#pragma once

#include <cstddef>

#include "backend/cuda/host_copy.h"

namespace redline::backend::cuda {

class InputSlots {
 public:
  InputSlots(std::size_t bytes, InputCopy way);

  // Puts the copy from `data` to `target` on the streams: `copies` brings it to the device, `compute` takes
  // it from there once what runs before is done. Memory of the way's allocator is read until read_out()
  // returns, other memory, and little of it, before this does.
  void write(const void* data, std::size_t bytes, std::byte* target, cudaStream_t copies,
             cudaStream_t compute);
  void read_out() const;

  std::size_t device_bytes() const { return slots_[0].staging.size() + slots_[1].staging.size(); }

 private:
  struct Slot {
    DeviceMemory staging;
    Event arrived, taken;
  };
  HostCopy copy_;
  Slot slots_[2];
  int next_ = 0;
  bool reading_ = false;  // the last write may still read its source
};

}  // namespace redline::backend::cuda
