// How fast ranks exchange data: one collective at a time, by size, with every result checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "comm/communicator.h"
#include "comm/exchange.h"

namespace redline::bench {

struct CommBenchOptions {
  std::vector<comm::Operation> operations = {
      comm::Operation::all_reduce, comm::Operation::reduce_scatter_all_gather, comm::Operation::broadcast};
  std::vector<std::size_t> sizes;  // bytes of the whole buffer, rounded up where it is split into equal parts
  std::vector<std::string> algorithms;  // those of the fabric; empty: all
  std::vector<std::string> protocols;   // the same
  comm::Type type = comm::Type::f32;
  int repeat = 20, warmup = 3;
  double seconds = 5;  // limit for the repetitions of one measurement: there are fewer beyond it
};

// Throws UsageError.
void validate(const CommBenchOptions& options);

// "all-reduce", "reduce-scatter+all-gather"
std::string name_of(comm::Operation operation);
comm::Operation parse_operation(const std::string& name);  // throws UsageError, naming the choices
std::string name_of(comm::Type type);                      // "fp32"
comm::Type parse_comm_type(const std::string& name);       // throws UsageError

// The bytes that a collective sends over a link for each byte of its buffer. With it, bus bandwidths can be
// compared with the hardware's for any collective and number of ranks.
double bus_factor(comm::Operation operation, int ranks);

enum class CommStatus : std::uint8_t { ok, unavailable, wrong };

// One operation, algorithm and size.
struct CommTiming {
  comm::Operation operation = comm::Operation::all_reduce;
  std::string algorithm;
  std::size_t bytes = 0;
  int ranks = 1;
  CommStatus status = CommStatus::ok;
  std::string reason;           // why there is no time, or what was wrong
  std::vector<double> seconds;  // of each repetition

  bool measured() const { return status == CommStatus::ok && !seconds.empty(); }
  double median_seconds() const;
  double p90_seconds() const;
  double algorithm_bandwidth() const;  // bytes of the buffer per second
  double bus_bandwidth() const;
};

// Called before and during each measurement with how many are done; false stops. Called on every rank; one
// false is enough.
using CommProgress = std::function<bool(std::int64_t done, std::int64_t of)>;
using CommDone = std::function<void(const CommTiming&)>;

// Every rank calls it; all get the same timings. The time of a repetition is that of the last rank to start
// it (the others also waited for that rank); for a broadcast, that of the slowest rank. What a library cannot
// do on this machine is recorded as unavailable. Returns what was measured so far when stopped. Throws
// UsageError if no algorithm is left, PeerError if a rank is lost.
std::vector<CommTiming> bench_comm(const CommBenchOptions& options, comm::Fabric& fabric,
                                   comm::Communicator& control, const CommProgress& progress,
                                   const CommDone& done);

std::string comm_csv(const std::vector<CommTiming>& timings);  // with a header line
nlohmann::ordered_json to_json(const CommTiming& timing);

}  // namespace redline::bench
