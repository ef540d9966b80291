// Many processes that train one model: a communicator knows this process's rank among them and moves numbers
// between all of them. Each call is made by every rank, in the same order on each channel, and ends within a
// time limit: where a peer died, was stopped or cannot be reached, it throws PeerError, which names who and
// why.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/position.h"

namespace redline::comm {

// A peer is gone or late. What this process alone did is in order: restarting the job resumes from its
// last checkpoint. Where a restart would not help, as one whose options differ, the code is another than 75.
class PeerError : public Error {
 public:
  explicit PeerError(const std::string& cause, ExitCode code = ExitCode::try_again) : Error(code, cause) {}
};

enum class Type : std::uint8_t { f32, f64, f16, bf16 };
std::size_t size_of(Type type);

// Streams of calls that do not wait for each other. One thread at a time per channel.
enum class Channel : std::uint8_t { control, gradients, norms };

enum class Algorithm : std::uint8_t { automatic, ring, bcube };  // automatic: by the number of bytes

class Fabric;  // exchange.h

// Who a rank is.
struct Member {
  std::string host;  // name of its machine
  std::int64_t process = 0;
  std::string address;  // where rank 0 sees it
};

// Between two questions to a device whether it is done.
inline constexpr std::chrono::microseconds kAskAgain{100};

// Destroying one ends the connection in order: the peers do not take it for a failure.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string description() const = 0;  // "gloo over 127.0.0.1"
  virtual const Member& member(int rank) const = 0;

  // Adds up `count` values over all ranks, in place. Every rank gets the same bits.
  virtual void all_reduce(void* values, std::size_t count, Type type, Channel channel = Channel::control,
                          Algorithm algorithm = Algorithm::automatic) = 0;
  // Copies `bytes` from rank `root` to the others.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;
  virtual void barrier() = 0;
  // Waits for what all ranks do together elsewhere, as the collectives of their devices: asks `done` until it
  // says so. What `done` throws is taken for a failure of the call.
  virtual void wait(const char* name, const std::function<bool()>& done) = 0;

  // Tells the peers why this rank leaves, so that they name it. Where starting the job again would not help,
  // as `code` says (64, 65), they end with it too, else with 75. Any thread; does not throw.
  virtual void leave(const std::string& why, ExitCode code = ExitCode::try_again) noexcept = 0;

  // This communicator's collectives, to be measured; it must outlive them. Throws UsageError for a process
  // alone.
  virtual std::unique_ptr<Fabric> make_fabric() = 0;

  // What this rank is at: the training loop says so, and it is told when the job hangs.
  Position& position() { return *position_; }

  // Every rank's value, by rank.
  std::vector<double> gather(double value);
  void all_reduce(std::span<double> values, Channel channel = Channel::control) {
    all_reduce(values.data(), values.size(), Type::f64, channel);
  }

 protected:
  const std::shared_ptr<Position> position_ = std::make_shared<Position>();
};

// The communicator of a process that has no peers: every call gives back what it was given.
std::unique_ptr<Communicator> make_single();

// Ranks of one machine share its cores and devices. `index` counts from 0 by rank.
struct Neighbours {
  int index = 0, count = 1;
};
inline Neighbours neighbours(const Communicator& communicator) {
  Neighbours found{0, 0};
  const std::string& host = communicator.member(communicator.rank()).host;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    if (communicator.member(rank).host != host) continue;
    if (rank < communicator.rank()) ++found.index;
    ++found.count;
  }
  return found;
}

}  // namespace redline::comm
