// Rank 0's end of the control connections. It admits only the ranks of its own job, stores the keys through
// which Gloo finds its peers, receives every rank's heartbeat, and tells all ranks when one is lost, which
// and why. It runs in its own thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/world.h"

namespace redline::comm {

// How often each end sends a heartbeat, and after how long a silence it counts as lost: before the calls that
// wait for it time out, so that they can name it.
std::chrono::milliseconds beat_interval(const TimeLimits& limits);
std::chrono::milliseconds silence_limit(const TimeLimits& limits);

class Coordinator {
 public:
  // Stores the reports on a hung job: one per rank, "rank-3.txt", and one of all, "ranks.txt". Called from
  // the coordinator's thread.
  using Keep = std::function<void(const std::string& file, const std::string& account)>;

  // Listens at the world's master address. Throws UnavailableError when that is not possible.
  Coordinator(const World& world, Facts facts, const TimeLimits& limits, Keep keep = {});
  // Waits a moment until the others have left, or know what happened.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  std::string address() const;  // "127.0.0.1:29500"

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

}  // namespace redline::comm
