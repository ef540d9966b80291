// Several processes that train one model: a communicator knows the rank of this process and moves numbers
// between all of them. Every rank makes the same calls, in the same order on each channel. Each call ends
// within a time limit: if a peer died, was stopped or cannot be reached, it throws PeerError, which names the
// peer and the reason.
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

// A peer is lost or late. This process itself is fine: restarting the job resumes from its last checkpoint.
// If a restart would not help, because a rank's options differ for example, the exit code is not 75.
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

// The pause between two polls of a device.
inline constexpr std::chrono::microseconds kAskAgain{100};

// Destroying one closes the connection properly: the peers do not see a failure.
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
  // Waits for something that all ranks do together elsewhere, such as the collectives of their devices: polls
  // `done` until it returns true. An exception from `done` counts as a failure of the call.
  virtual void wait(const char* name, const std::function<bool()>& done) = 0;

  // Tells the peers why this rank leaves, so that they can name it. They end with `code` too if a restart
  // would not help (64, 65), otherwise with 75. Any thread; does not throw.
  virtual void leave(const std::string& why, ExitCode code = ExitCode::try_again) noexcept = 0;

  // This communicator's collectives, for benchmarks; it must outlive them. Throws UsageError for a single
  // process.
  virtual std::unique_ptr<Fabric> make_fabric() = 0;

  // What this rank is doing, as set by the training loop; reported when the job hangs.
  Position& position() { return *position_; }

  // Every rank's value, by rank.
  std::vector<double> gather(double value);
  void all_reduce(std::span<double> values, Channel channel = Channel::control) {
    all_reduce(values.data(), values.size(), Type::f64, channel);
  }

 protected:
  const std::shared_ptr<Position> position_ = std::make_shared<Position>();
};

// The communicator of a process without peers: every call returns its input.
std::unique_ptr<Communicator> make_single();

// Ranks of one machine share its cores and devices. `index` counts from 0 by rank.
struct Neighbours {
  int index = 0, count = 1;
};
// By name and address: machines that were set up from one image may have one name.
inline bool on_one_machine(const Member& a, const Member& b) {
  return a.host == b.host && a.address == b.address;
}
inline Neighbours neighbours(const Communicator& communicator) {
  Neighbours found{0, 0};
  for (int rank = 0; rank < communicator.size(); ++rank) {
    if (!on_one_machine(communicator.member(rank), communicator.member(communicator.rank()))) continue;
    if (rank < communicator.rank()) ++found.index;
    ++found.count;
  }
  return found;
}

}  // namespace redline::comm
