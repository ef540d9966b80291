// Connects the ranks of a job and returns their communicator: Gloo over TCP, with a control connection to
// rank 0 that reports lost ranks.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/world.h"

namespace redline::comm {

struct ConnectOptions {
  World world;
  Facts facts;  // what must be the same on every rank
  TimeLimits limits;
  const std::atomic<bool>* stop = nullptr;  // raised: no more waiting for the others
  std::string interface;  // whose address Gloo listens at, "eth0"; empty: the one that leads to rank 0
  // Called from another thread, with the cause, if a peer was lost and this process has not destroyed its
  // communicator within `grace`: it may be stuck in a call that cannot be interrupted. May be empty.
  std::function<void(const std::string& cause)> on_stuck;
  std::chrono::milliseconds grace{3'000};
};

// For on_stuck: says so and ends the process at once, with exit code 75.
std::function<void(const std::string& cause)> end_process(int rank);

// Returns when every rank is connected; with a single rank, at once. On rank 0 the communicator owns the
// coordinator. From then on the process ignores SIGPIPE. Throws PeerError, UsageError (refused) and
// UnavailableError (an address or interface that cannot be used).
std::unique_ptr<Communicator> connect(const ConnectOptions& options);

}  // namespace redline::comm
