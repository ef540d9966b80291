// Memory that the executables of one State use in turn: what they keep between two runs lies elsewhere.
#pragma once

#include <cstddef>
#include <memory>

namespace redline::backend {

// `Memory` is made from a number of bytes and has a size().
template <typename Memory>
class WorkMemory {
 public:
  // At least that many bytes: those that are there, or new ones, which later callers then share. Who asked
  // before keeps what it got, so the largest should come first.
  std::shared_ptr<Memory> at_least(std::size_t bytes) {
    if (memory_ == nullptr || memory_->size() < bytes) memory_ = std::make_shared<Memory>(bytes);
    return memory_;
  }

 private:
  std::shared_ptr<Memory> memory_;
};

}  // namespace redline::backend
