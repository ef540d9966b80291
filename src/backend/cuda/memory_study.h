// What the study of a GPU's memory is made of: methods to and from the current device, and the orders in
// which its kernels reach its memory.
#pragma once

#include <memory>

#include "backend/input_copy.h"
#include "backend/memory_study.h"

namespace redline::backend::cuda {

// A copy between host and device: a method that training uses, or a variant that only the study has.
struct HostTransfer {
  InputCopy memory = InputCopy::pinned;
  bool to_device = true;
  bool prefetch = true;  // managed memory: moved at once, or page by page as it is touched
  int threads = 1;       // each with a part of the bytes and a stream of its own
};
std::unique_ptr<MemoryMove> make_host_move(const HostTransfer& transfer, std::size_t bytes);

}  // namespace redline::backend::cuda
