// Memory that the executables of one State use in turn: what they keep between two runs lies elsewhere.
#pragma once

#include <cstddef>
#include <memory>

namespace redline::backend {

// `Memory` is made from a number of bytes and has a size().
template <typename Memory>
class WorkMemory {
 public:
  // Memory of at least this size: what is there, or a new allocation, which later callers then share. Earlier
  // callers keep what they have, so the largest should ask first.
  std::shared_ptr<Memory> at_least(std::size_t bytes) {
    if (memory_ == nullptr || memory_->size() < bytes) memory_ = std::make_shared<Memory>(bytes);
    return memory_;
  }

 private:
  std::shared_ptr<Memory> memory_;
};

}  // namespace redline::backend
