// Starts the ranks of a job on this machine, watches them, and leaves none behind.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace redline::comm {

struct LaunchOptions {
  std::vector<std::string> program;     // and its arguments
  std::vector<std::string> on_restart;  // arguments that a restart adds
  int processes = 1;                    // on this machine
  int nodes = 1, node_rank = 0;         // machines, each with as many processes
  int min_nodes = 0;                    // that an attempt begins with when others do not come; 0: all
  std::string master_host = "127.0.0.1";
  std::uint16_t master_port = 0;  // 0, on one machine: any that is free
  std::string run_id;             // the same on every machine; empty, on one machine: made up
  std::string token_file;  // holds the job's secret; made where it is missing on the first machine. Empty, on
                           // one machine: a secret that only the processes know
  std::string log_dir;     // for what each process writes to stderr, as rank-N.log; empty: none is kept
  int max_restarts = 0;    // on several machines node 0's counts
  double join_seconds = 300;  // to wait for the launchers of the other machines
};

// Returns the signal that this process received; 0 if none.
using Signal = std::function<int()>;

// Runs the job to its end, passing signals on to the processes, and returns the exit code: 0 if every process
// returned 0; the code of the process that caused the end, if it returned one; 75 if one was killed, or could
// not continue without the others. The stderr of the processes is passed on, prefixed with their rank. If one
// fails, the others get a moment to end, then they are killed. A job that ends with 75 is restarted, up to
// max_restarts times. On several machines node 0's launcher decides this (nodes.h), listens on the master's
// port, and lets rank 0 listen on the next one. Throws UsageError, IoError for a program that cannot be
// started, and PeerError if the launchers cannot reach each other.
int launch(const LaunchOptions& options, const Signal& signal);

}  // namespace redline::comm
