// Collectives to be measured: each is made once, over memory of its own, and repeated. Training does not use
// these; it has the Communicator and its backend's own reductions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace redline::comm {

enum class Operation : std::uint8_t {
  all_reduce,                 // every rank gets the sums
  reduce_scatter,             // every rank gets its part of the sums
  all_gather,                 // every rank gets all parts
  reduce_scatter_all_gather,  // one after the other: an all-reduce in two halves
  broadcast,                  // rank 0's values go to all
};

struct ExchangeOptions {
  Operation operation = Operation::all_reduce;
  Type type = Type::f32;
  std::size_t count = 0;  // values of the whole buffer; a multiple of the ranks where they are parted
  std::string algorithm;  // one of Fabric::algorithms
};

// One collective. Every rank makes the same calls in the same order.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // What this rank brings, `count` values; of an all-gather only its own part is used.
  virtual void fill(std::span<const std::byte> values) = 0;
  // Does it so often, each time with what fill() gave, and tells how many seconds each time took on this
  // rank. Throws PeerError when a peer is lost or the time limit has passed.
  virtual std::vector<double> run(int repetitions) = 0;
  // What the last time gave: the whole buffer, or after a reduce-scatter this rank's part.
  virtual void read(std::span<std::byte> values) const = 0;
};

// What moves the numbers: Gloo between processors, NCCL between GPUs.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual std::string description() const = 0;  // "gloo over 127.0.0.1"
  // "ring", or "ring/simple" where there are protocols; the first is what is best known.
  virtual std::vector<std::string> algorithms(Operation operation) const = 0;
  // Throws UnavailableError, on every rank alike, for what the library does not do on this machine. That may
  // also show in the first run(). One exchange at a time.
  virtual std::unique_ptr<Exchange> make_exchange(const ExchangeOptions& options) = 0;
};

}  // namespace redline::comm
