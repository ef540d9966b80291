// The exchanges of a step on the host with other ranks: gradients, bucket by bucket on a separate thread
// during the backward pass, and the sums of synchronised norms.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "plan/plan.h"

namespace redline::backend {

class Collectives {
 public:
  // `gradients` is the plan's gradient memory and outlives this object, as the plan does.
  Collectives(std::shared_ptr<comm::Communicator> communicator, const plan::Plan& plan, std::byte* gradients);
  ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  int ranks() const { return communicator_->size(); }
  // Replaces values by their means over all ranks. Waits for the others.
  void average(std::span<double> values);

  // Begins to reduce the buckets that are complete after an op.
  void begin_after(std::size_t op);
  // Waits until the bucket of an all_reduce op has the sums over all ranks; begins the reduction if
  // necessary. Throws what the reduction threw.
  void finish(std::size_t op);

  // Whether this rank may abandon the step at this op. It then calls spoil(), which makes all ranks refuse
  // the step, so it must still have buckets to contribute. `wanted`: this rank wants to. If ranks also
  // exchange the sums of norms, they all leave together, after the exchange that carries the request.
  bool may_leave(bool wanted);
  // Contributes NaN for the buckets that were not begun.
  void spoil();

  // How long average() and finish(), called by one thread, waited for other ranks since the last call.
  std::chrono::nanoseconds take_exposed();

 private:
  enum class State { idle, begun, done };
  struct Work {
    float* values = nullptr;
    std::size_t count = 0;
    int ready_after = -1;
    int op = -1;  // the all_reduce that waits for it
    State state = State::idle;
  };

  void begin(std::size_t index);  // with the lock held
  void run();
  void reduce(const Work& work);

  const std::shared_ptr<comm::Communicator> communicator_;
  graph::DType wire_ = graph::DType::f32;
  bool averages_ = false;               // norms are synchronised
  bool wanted_ = false;                 // by this rank: to leave the step
  bool agreed_ = false;                 // all ranks know that one of them wants to
  std::vector<double> sums_;            // of a norm, to be exchanged, and the wish to leave
  std::vector<std::uint16_t> halves_;   // a bucket to be exchanged in 16 bits
  std::chrono::nanoseconds exposed_{};  // of the thread that calls
  std::mutex mutex_;                    // of what follows
  std::condition_variable changed_;
  std::vector<Work> works_;  // by bucket
  std::deque<std::size_t> queue_;
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace redline::backend
