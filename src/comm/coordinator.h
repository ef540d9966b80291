// Rank 0's end of the control connections. It lets in the ranks of its own job and nobody else, keeps the
// keys through which Gloo finds its peers, hears every rank's beat, and when one is lost tells all the others
// which and why. One thread of its own.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/world.h"

namespace redline::comm {

// How often each end shows that it lives, and after which silence it is taken for lost: before the calls that
// wait for it run out of time, so that these can name it.
std::chrono::milliseconds beat_interval(const TimeLimits& limits);
std::chrono::milliseconds silence_limit(const TimeLimits& limits);

class Coordinator {
 public:
  // What is known of a job that hangs: by ranks, "rank-3.txt", and of all of them, "ranks.txt". Called from
  // the thread.
  using Keep = std::function<void(const std::string& file, const std::string& account)>;

  // Listens at the world's master address. Throws UnavailableError when that is not possible.
  Coordinator(const World& world, Facts facts, const TimeLimits& limits, Keep keep = {});
  // Stays for a moment until the others have left, or know what happened.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  std::string address() const;  // "127.0.0.1:29500"

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

}  // namespace redline::comm
