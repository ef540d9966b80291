// What a step exchanges with other ranks, inside its graph. Gradients are added up, each bucket as soon as
// backward has given it, on a stream of their own; the one that computes waits for it where the plan says so.
// The sums of synchronised norms are averaged where they are made.
#pragma once

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
  // Without `nccl` the process is alone, and there are none. `activations` is the type that gradients are
  // kept in. Throws UnavailableError for a plan whose gradients are to travel in another.
  Reductions(const plan::Plan& plan, std::shared_ptr<Nccl> nccl, const Address& address, DType activations);

  // An all_reduce on the stream that it is given; empty for other groups, or where there is nobody to
  // exchange with.
  Step make(std::size_t group) const;

  // Around the capture of a whole step: begin(), then before every group `before`. It begins the buckets that
  // are complete, after what `stream` and `side` (null while unused) hold so far, telling `launched` each
  // one's group and stream; true when the group itself is one of those, and `stream` has been made to wait
  // for it.
  using Launched = std::function<void(std::size_t group, cudaStream_t stream)>;
  void begin() { begun_.clear(); }
  bool before(std::size_t group, cudaStream_t stream, cudaStream_t side, const Launched& launched);

  // Puts on a stream what the ranks exchange after a group: the sums for a synchronised norm that it made.
  void after(std::size_t group, cudaStream_t stream) const;

  // Returns when `done` says so; where other ranks are needed for that and one is lost, throws as
  // Nccl::await.
  void await(const std::function<bool()>& done);
  // Nanoseconds between the last op of backward and the last sum over ranks, of all steps that are done; in
  // memory of the device, null where there are none.
  const std::uint64_t* exposed() const;

 private:
  struct Reduction {
    std::size_t group = 0, ready_after = 0;
    std::vector<ReduceRange> ranges;
  };
  void add_bucket(std::size_t group, const graph::Op& op, const Address& address, DType activations);
  void add_norm(std::size_t group, const graph::Op& op, const Address& address);
  std::uint64_t* time(int which) const { return reinterpret_cast<std::uint64_t*>(times_.data()) + which; }

  const plan::Plan& plan_;
  std::shared_ptr<Nccl> nccl_;
  std::vector<Reduction> reductions_;                         // in the order of the buckets
  std::map<std::size_t, std::vector<ReduceRange>> averages_;  // group that makes them -> norms' sums
  Stream stream_;
  DeviceMemory times_;                  // that the device counts
  std::map<std::size_t, Event> begun_;  // by group, its end
};

}  // namespace redline::backend::cuda
