// The rank of this process and the size of its job, as set by the launcher: redline launch, torchrun,
// Kubernetes' training operator, Slurm, Flux, or the mpiexec of Open MPI, MPICH, Intel MPI and PALS.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace redline::comm {

struct World {
  int rank = 0, size = 1;
  std::string launcher;     // "torchrun"; empty: none, this process is alone
  std::string master_host;  // where rank 0 listens
  std::uint16_t master_port = 0;
  std::string run_id;  // the same on every rank of a job, another for every job
  std::string token;   // a shared secret; empty: none
  // Every rank is on this machine, as far as the launcher says.
  bool one_machine = false;
};

struct TimeLimits {
  std::chrono::milliseconds join{300'000};       // until every rank is there
  std::chrono::milliseconds collective{60'000};  // of one call; a rank silent for that long is lost
};

// What must be the same on every rank: a name for people, and the value.
using Facts = std::vector<std::pair<std::string, std::string>>;

// Returns a variable's value, or nothing if it is unset.
using Environment = std::function<std::optional<std::string>(const char* name)>;

// Throws UsageError when variables contradict each other or one is missing, IoError for a token file that
// cannot be read.
World find_world(const Environment& environment);
World find_world();  // by this process's own variables

// Whether a host name is a loopback name: "localhost", "127.0.0.1", "::1".
bool is_loopback_name(const std::string& host);

// The secret in a file, without the line end. Throws IoError, and UsageError if it is too short or too long.
std::string read_token(const std::string& path);

// "node[01-04,07],gpu3" -> "node01": the first host of a list as Slurm writes it.
std::string first_host(const std::string& list);

// Splits "host:port", "[::1]:port". Throws UsageError naming `flag`.
void parse_endpoint(const std::string& text, const char* flag, std::string& host, std::uint16_t& port);

}  // namespace redline::comm
