// Gradients added up over ranks inside the step's graph: each bucket as soon as backward has given it, on a
// stream beside the one that computes, which waits for it where the plan says so.
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
  Reductions(const plan::Plan& plan, std::shared_ptr<const Nccl> nccl, const Address& address,
             graph::DType activations);

  // An all_reduce op on the stream that it is given.
  Step make(const graph::Op& op) const;

  // Around the capture of a whole step: begin(), then before every op `before`. It begins the buckets that
  // are complete, after what `stream` and `beside` (null while unused) hold so far, telling `launched` each
  // one's op and stream; true when the op itself is one of those, and `stream` has been made to wait for it.
  using Launched = std::function<void(std::size_t op, cudaStream_t stream)>;
  void begin() { begun_.clear(); }
  bool before(std::size_t op, cudaStream_t stream, cudaStream_t beside, const Launched& launched);

  // To be told of every launch of a graph that was captured so.
  void launched() { launched_ = !reductions_.empty(); }
  // The time between the last op of backward and the last sum over ranks, of all steps; waits for the last
  // one.
  CommunicationTime time() const;

 private:
  struct Reduction {
    std::size_t op = 0, ready_after = 0;
    std::vector<ReduceRange> ranges;
  };
  void follow(cudaStream_t later, cudaStream_t earlier);

  const plan::Plan& plan_;
  std::shared_ptr<const Nccl> nccl_;
  std::vector<Reduction> reductions_;  // in the order of the buckets
  Stream stream_;
  Event computed_, reduced_;
  std::vector<Event> marks_;                  // of the capture
  std::map<std::size_t, cudaEvent_t> begun_;  // op -> mark of its end
  mutable bool launched_ = false;
  mutable CommunicationTime time_;
};

}  // namespace redline::backend::cuda
