// NCCL's collectives. The library is loaded at run time, since a process that trains alone does not need it.
// Names and values are those of NCCL 2's C interface.
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

// Contiguous values of one type.
struct ReduceRange {
  std::byte* values = nullptr;
  std::size_t count = 0;
  graph::DType dtype = graph::DType::f32;
};

enum class Reduce : std::uint8_t { sum, average };

// The ranks of a job. Each uses the device that is current when this is made.
class Nccl {
 public:
  // Every rank makes one at the same time; `control` sends rank 0's key to the others. Throws
  // UnavailableError if the library is missing or fails. A rank that dies meanwhile is detected by the
  // control connection.
  explicit Nccl(std::shared_ptr<comm::Communicator> control);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  const std::string& version() const { return version_; }
  int ranks() const { return control_->size(); }
  // Queues the sums or means of all ranges over all ranks, in place, as one operation. Can be captured into a
  // graph. Operations on different streams run in the order of the calls, which must be the same on every
  // rank.
  void all_reduce(std::span<const ReduceRange> ranges, Reduce how, cudaStream_t stream) const;
  // Queues one collective, for measuring. In place: if the buffer is divided among the ranks, this rank's
  // part is at its offset. A broadcast is from rank 0.
  void exchange(comm::Operation operation, const ReduceRange& range, cudaStream_t stream) const;

  // Polls `done` until it returns true. If a peer is lost, the network fails or the job's time limit passes,
  // aborts NCCL's work on the device and throws PeerError; no collective is possible after that.
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
