// The part of NCCL that adds up numbers over ranks, found at run time: a process that trains alone does not
// need the library. The names and values are those of NCCL's C interface, release 2.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>

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

enum class Reduce : std::uint8_t { sum, average };

// The ranks of a job, each with the device that is current when it is made.
class Nccl {
 public:
  // Every rank makes one at the same time: rank 0's key goes to the others through `control`. Throws
  // UnavailableError when the library is not there or refuses; a rank that dies meanwhile is for the control
  // connection to find.
  explicit Nccl(std::shared_ptr<comm::Communicator> control);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  const std::string& version() const { return version_; }
  int ranks() const { return control_->size(); }
  // Puts the sums or means of all ranges over all ranks on a stream, in place, as one operation. Can be
  // captured into a graph. What is put on several streams is done in the order of the calls, which is the
  // same on every rank.
  void all_reduce(std::span<const ReduceRange> ranges, Reduce how, cudaStream_t stream) const;
  // Puts one collective on a stream, to be measured. In place: what is parted among the ranks lies at this
  // rank's place; a broadcast is from rank 0.
  void exchange(comm::Operation operation, const ReduceRange& range, cudaStream_t stream) const;

  // Asks `done` until work that was launched is: where a peer is lost, the network fails or the job's time
  // limit passes, it ends all of NCCL's work on the device and throws PeerError. Nothing can be reduced then.
  void await(const std::function<bool()>& done);

 private:
  struct Functions;
  void check(int result, const char* what) const;
  void abort();

  const std::shared_ptr<comm::Communicator> control_;
  std::unique_ptr<Functions> functions_;
  void* comm_ = nullptr;
  std::string version_;
  std::thread aborting_;
};

}  // namespace redline::backend::cuda
