// Memory that the executables of one State use in turn. Nothing in it survives from one run to the next.
#pragma once

#include <cstddef>
#include <memory>

namespace redline::backend {

// `Memory` is made from a number of bytes and has a size().
template <typename Memory>
class WorkMemory {
 public:
  // Memory of at least this size: the existing allocation, or a new one, which later callers then share.
  // Earlier callers keep theirs, so the largest should ask first.
  std::shared_ptr<Memory> at_least(std::size_t bytes) {
    if (memory_ == nullptr || memory_->size() < bytes) memory_ = std::make_shared<Memory>(bytes);
    return memory_;
  }

 private:
  std::shared_ptr<Memory> memory_;
};

}  // namespace redline::backend
