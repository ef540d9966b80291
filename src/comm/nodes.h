// A job's launchers on several machines. Node 0's launcher decides when an attempt begins and with which
// nodes, whether a failed job is restarted, and how it ends; the others follow, even if they come late or are
// restarted. A launcher that is briefly unreachable continues with its ranks, which watch each other; a lost
// launcher ends the attempt.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"

namespace redline::comm {

inline constexpr int kTryAgain = static_cast<int>(ExitCode::try_again);

struct NodesOptions {
  int node = 0, nodes = 1;
  int min_nodes = 1;  // launchers that suffice to begin if the others do not come
  int processes = 1;  // on each
  std::string host;   // where node 0's launcher listens
  std::uint16_t port = 0;
  std::string run_id, token;
  int max_restarts = 0;                            // node 0's counts
  std::chrono::milliseconds patience{300'000};     // for launchers that are not there
  std::chrono::milliseconds elastic_wait{30'000};  // for more than min_nodes
};

// What a launcher has to do.
struct Order {
  enum class Kind { start, stop, end };
  Kind kind = Kind::end;
  int attempt = 0, index = 0, nodes = 1;  // start: which of how many launchers this one is now
  std::string run_id;                     // start: of the attempt
  std::string why;                        // stop, end
  int code = 0;                           // end: the job's exit code
};

// How the ranks of a node ended. A final end is not followed by another attempt.
struct Ended {
  int attempt = 0, code = 0;
  bool final = false;
  std::string why;
};

class Nodes {
 public:
  // Node 0 begins to listen. Throws UnavailableError if it cannot.
  explicit Nodes(const NodesOptions& options);
  // Node 0 waits a moment, until the others know how the job ended.
  ~Nodes();
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  // The next order to start or to end; `poll` is called meanwhile and may throw. Throws PeerError when node 0
  // cannot be reached for too long, and UsageError when it refuses this launcher.
  Order next(const std::function<void()>& poll);
  // While ranks run: an order to stop them, if there is one. Waits only a moment.
  std::optional<Order> check();
  void report(const Ended& ended);  // does not throw

 private:
  class Server;
  class Client;
  std::unique_ptr<Server> server_;  // on node 0
  std::unique_ptr<Client> client_;
};

}  // namespace redline::comm
