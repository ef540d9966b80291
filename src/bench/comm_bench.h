// How fast numbers move between ranks: one collective at a time, by size, with every result checked.
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
  std::vector<std::size_t> sizes;  // bytes of the whole buffer, rounded up to equal parts where it is parted
  std::vector<std::string> algorithms;  // of those that the fabric has; empty: all
  std::vector<std::string> protocols;   // the same
  comm::Type type = comm::Type::f32;
  int repeat = 20, warmup = 3;
  double seconds = 5;  // that the repetitions of one measurement may take: else there are fewer
};

// Throws UsageError.
void validate(const CommBenchOptions& options);

// "all-reduce", "reduce-scatter+all-gather"
std::string name_of(comm::Operation operation);
comm::Operation parse_operation(const std::string& name);  // throws UsageError, naming the choices
std::string name_of(comm::Type type);                      // "fp32"
comm::Type parse_comm_type(const std::string& name);       // throws UsageError

// The part of a link's bandwidth that a collective needs for each byte of its buffer, so that bus bandwidths
// can be compared with the hardware's whatever the collective and the number of ranks.
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
  double algorithm_bandwidth() const;  // bytes of the buffer a second
  double bus_bandwidth() const;
};

// Told before each measurement how many are done; false stops. Every rank is asked, and one is enough.
using CommProgress = std::function<bool(std::int64_t done, std::int64_t of)>;
using CommDone = std::function<void(const CommTiming&)>;

// Every rank calls it; each gets the same timings. A repetition takes as long as on the rank that came to it
// last (the others also waited for that one); a broadcast, as long as on the slowest. What a library does not
// do on this machine is recorded as that. Gives what was measured so far when stopped. Throws UsageError when
// no algorithm is left, PeerError when a rank is lost.
std::vector<CommTiming> bench_comm(const CommBenchOptions& options, comm::Fabric& fabric,
                                   comm::Communicator& control, const CommProgress& progress,
                                   const CommDone& done);

std::string comm_csv(
    const std::vector<CommTiming>& timings);  // the first line gives the names of the columns
nlohmann::ordered_json to_json(const CommTiming& timing);

}  // namespace redline::bench
