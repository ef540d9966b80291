// A rank's end of the control connection: it joins the job, reads and writes the keys through which Gloo
// finds its peers, and learns when a peer is lost. Its own thread sends the heartbeat.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/handshake.h"
#include "comm/position.h"
#include "comm/wire.h"
#include "comm/world.h"

namespace redline::comm {

class Membership {
 public:
  // Connects to rank 0, retrying until it listens, and waits for every other rank. Throws PeerError if that
  // takes longer than allowed, or `stop` is raised; UsageError if rank 0 refuses this process. When the job
  // hangs, what this rank was doing is logged, and saved with its threads' stacks (position.h).
  Membership(const World& world, const Facts& facts, const TimeLimits& limits,
             const std::atomic<bool>* stop = nullptr,
             std::shared_ptr<Position> position = std::make_shared<Position>());
  ~Membership();  // says goodbye
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  const std::vector<Member>& members() const { return members_; }  // by rank
  std::string own_address() const;                                 // of this end, without the port

  void set(const std::string& key, const std::vector<char>& value);
  // Waits for the key. Throws PeerError.
  std::vector<char> get(const std::string& key, std::chrono::milliseconds limit);

  // `action` is called once, from the thread, with the cause, if this object still exists `grace` after a
  // peer was lost.
  using Action = std::function<void(const std::string& cause)>;
  void on_stuck(Action action, std::chrono::milliseconds grace);
  void allow(std::chrono::milliseconds grace);  // more of it
  // Why the job ends: waits a moment for the coordinator to report it. Empty if it does not.
  std::string cause(std::chrono::milliseconds wait);
  PeerError error() const;  // of a cause that is known
  void report_late();
  void leave(const std::string& why, ExitCode code = ExitCode::try_again) noexcept;

 private:
  void join(Clock::time_point deadline, const std::atomic<bool>* stop);
  void run();
  void listen();  // until a peer is lost, or it is to stop
  void handle(const Message& message);
  void lost(const std::string& cause, ExitCode code = ExitCode::try_again);
  void explain(bool rank_0_answers);  // what this rank is at, once
  bool send(const Message& message);
  Message call_message(const char* kind) const;

  const World world_;
  const TimeLimits limits_;
  Link link_;
  std::mutex sending_;
  const std::shared_ptr<Position> position_;
  bool explained_ = false;  // the thread's
  std::atomic<bool> stop_{false};

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<Member> members_;
  bool all_here_ = false;
  std::map<std::string, std::vector<char>> values_;
  std::string cause_;
  ExitCode code_ = ExitCode::try_again;
  Action on_stuck_;
  std::chrono::milliseconds grace_{};

  std::thread thread_;
};

}  // namespace redline::comm
