// The part of NCCL that adds up gradients over ranks, found at run time: a process that trains alone does not
// need the library. The names and values are those of NCCL's C interface, release 2.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "comm/communicator.h"
#include "comm/exchange.h"
#include "graph/tensor.h"

namespace redline::backend::cuda {

// Values of one type that lie together.
struct ReduceRange {
  std::byte* values = nullptr;
  std::size_t count = 0;
  graph::DType dtype = graph::DType::f32;
};

// The ranks of a job, each with the device that is current when it is made.
class Nccl {
 public:
  // Every rank makes one at the same time: rank 0's key goes to the others through `control`. Throws
  // UnavailableError when the library is not there or refuses; a rank that dies meanwhile is for the control
  // connection to find.
  explicit Nccl(comm::Communicator& control);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  const std::string& version() const { return version_; }
  // Puts the sums of all ranges over all ranks on a stream, in place, as one operation. Can be captured into
  // a graph.
  void all_reduce(std::span<const ReduceRange> ranges, cudaStream_t stream) const;
  // Puts one collective on a stream, to be measured. In place: what is parted among the ranks lies at the
  // place of `rank`, this one; a broadcast is from rank 0.
  void exchange(comm::Operation operation, const ReduceRange& range, int rank, int ranks,
                cudaStream_t stream) const;
  // Throws what has gone wrong since, if anything.
  void check_health() const;

 private:
  struct Functions;
  void check(int result, const char* what) const;

  std::unique_ptr<Functions> functions_;
  void* comm_ = nullptr;
  std::string version_;
};

}  // namespace redline::backend::cuda
