// Collectives for benchmarks: each is created once, with its own memory, and repeated. Training does not use
// these, but the Communicator and its backend's reductions.
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
  // Sets this rank's `count` input values; an all-gather only uses its own part.
  virtual void fill(std::span<const std::byte> values) = 0;
  // Runs it `repetitions` times, each time with the values of fill(), and returns the seconds that each took
  // on this rank. Throws PeerError if a peer is lost or the time limit has passed.
  virtual std::vector<double> run(int repetitions) = 0;
  // The result of the last repetition: the whole buffer, or after a reduce-scatter this rank's part.
  virtual void read(std::span<std::byte> values) const = 0;
};

// The library that moves the numbers: Gloo between CPUs, NCCL between GPUs.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual std::string description() const = 0;  // "gloo over 127.0.0.1"
  // "ring", or "ring/simple" if there are protocols; the best known comes first.
  virtual std::vector<std::string> algorithms(Operation operation) const = 0;
  // Throws UnavailableError, on every rank, if the library does not support it on this machine. The first
  // run() may throw it too. One exchange at a time.
  virtual std::unique_ptr<Exchange> make_exchange(const ExchangeOptions& options) = 0;
};

}  // namespace redline::comm
