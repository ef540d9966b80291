// The exchanges of a step with other ranks, inside its graph. Each bucket of gradients is summed on a
// separate stream as soon as the backward pass has completed it; the compute stream waits for it where the
// plan says so. The sums of synchronised norms are averaged right after the group that computes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/nccl.h"
#include "backend/cuda/step.h"

namespace redline::backend::cuda {

class Reductions {
 public:
  using Address = std::function<std::byte*(graph::TensorId)>;
  // Without `nccl` the process is alone and nothing is exchanged. Throws UnavailableError for a plan that
  // exchanges gradients in another type than they are stored in.
  Reductions(const plan::Plan& plan, std::shared_ptr<Nccl> nccl, const Address& address);

  // The step of an all_reduce; empty for other groups, and if the process is alone.
  Step make(std::size_t group) const;

  // For the capture of a whole step: begin(), then before() ahead of every group. It starts the exchange of
  // the buckets that are complete, behind the work on `stream` and `side` (null while unused), and reports
  // each one's group and stream to `launched`. Returns true if the group itself is the all_reduce of a bucket
  // that was started: `stream` then waits for it, and there is nothing else to launch.
  using Launched = std::function<void(std::size_t group, cudaStream_t stream)>;
  void begin() { begun_.clear(); }
  bool before(std::size_t group, cudaStream_t stream, cudaStream_t side, const Launched& launched);

  // Queues the exchange that follows a group: of the sums that it computed for synchronised norms.
  void after(std::size_t group, cudaStream_t stream) const;

  // With buckets to exchange, waits until `done` returns true, as Nccl::await; otherwise returns at once.
  void await(const std::function<bool()>& done);
  // Nanoseconds from the last op of the backward pass to the last sum over ranks, added up over all steps so
  // far, in device memory; null if no bucket is exchanged.
  const std::uint64_t* exposed() const;

 private:
  struct Reduction {
    std::size_t group = 0, ready_after = 0;
    std::vector<ReduceRange> ranges;
  };
  struct Times {             // that the device keeps, in nanoseconds of its clock
    std::uint64_t computed;  // when backward ended
    std::uint64_t exposed;   // the sum of the time after it
  };
  void add_bucket(std::size_t group, const graph::Op& op, const Address& address);
  void add_norm(std::size_t group, const graph::Op& op, const Address& address);
  Times* times() const { return reinterpret_cast<Times*>(times_.data()); }

  const plan::Plan& plan_;
  std::shared_ptr<Nccl> nccl_;
  std::vector<Reduction> reductions_;                         // in the order of the buckets
  std::map<std::size_t, std::vector<ReduceRange>> averages_;  // group that makes them -> norms' sums
  Stream stream_;
  DeviceMemory times_;
  std::map<std::size_t, Event> begun_;  // by group: the end of its exchange
};

}  // namespace redline::backend::cuda
