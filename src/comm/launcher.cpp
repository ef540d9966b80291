#include "comm/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/append_file.h"
#include "base/error.h"
#include "base/log.h"
#include "base/sha256.h"
#include "comm/nodes.h"
#include "comm/protocol.h"
#include "comm/wire.h"
#include "comm/world.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

// After one process fails, the others have this long to end, and this long after being asked to.
constexpr milliseconds kAlone{15'000}, kAsked{30'000};
constexpr milliseconds kRestartPause{1'000};

std::string random_text() { return hex(random_bytes(16)); }

// The prefix of a secret that a launcher made, not the user.
constexpr std::string_view kMade = "launch-";

void make_token_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0 && errno == EEXIST) return;
  const Socket file(fd);
  const std::string text = fmt::format("{}{}\n", kMade, random_text());
  if (fd < 0 || ::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw IoError("cannot write the token file {}: {}", path, std::generic_category().message(errno));
}

// Node 0's secret. A secret made for a job is useless after it: the last launcher that uses it removes it,
// even if the launcher that made it was killed.
class TokenFile {
 public:
  explicit TokenFile(const LaunchOptions& options) : path_(options.token_file) {
    if (path_.empty() || options.node_rank != 0) return;
    make_token_file(path_);
    file_ = Socket(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (file_.fd() >= 0) ::flock(file_.fd(), LOCK_SH | LOCK_NB);
  }
  ~TokenFile() {
    std::array<char, kMade.size()> begin{};
    if (file_.fd() < 0 || ::pread(file_.fd(), begin.data(), begin.size(), 0) != ssize_t{kMade.size()}) return;
    const bool made = std::string_view(begin.data(), begin.size()) == kMade;
    if (made && ::flock(file_.fd(), LOCK_EX | LOCK_NB) == 0) ::unlink(path_.c_str());
  }
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

 private:
  const std::string path_;
  Socket file_;
};

// A port of the loopback address that is free now.
std::uint16_t free_port(const std::string& host) {
  const std::string address = own_address(listen_at(host, 0, false), true);
  return static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
}

milliseconds seconds_of(double seconds) { return milliseconds(static_cast<std::int64_t>(1000 * seconds)); }

// Rank 0 listens on the port after that of node 0's launcher.
std::uint16_t port_of_ranks(std::uint16_t port) {
  return static_cast<std::uint16_t>(port == 65535 ? port - 1 : port + 1);
}

struct Child {
  int rank = 0;
  pid_t process = -1;
  Socket errors;       // its stderr
  std::string unread;  // of it, a line that is not whole
  std::shared_ptr<AppendFile> log;
  bool running = true, stopped = false;
  int status = 0;

  bool good() const { return !running && WIFEXITED(status) && WEXITSTATUS(status) == 0; }
};

// The processes of this machine in one attempt.
struct Attempt {
  std::vector<std::string> program;
  int index = 0, nodes = 1;  // this machine among those that take part
  std::uint16_t port = 0;    // where rank 0 listens
  std::string run_id, token;
};

using Variables = std::vector<std::pair<std::string, std::string>>;

// This process's environment plus these variables.
std::vector<std::string> environment_with(const Variables& variables) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (std::ranges::none_of(variables, [&](const auto& own) { return own.first == name; }))
      all.emplace_back(text);
  }
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

class Job {
 public:
  Job(const LaunchOptions& options, const Attempt& attempt) {
    for (int local = 0; local < options.processes; ++local) {
      Child child;
      child.rank = attempt.index * options.processes + local;
      if (!options.log_dir.empty())
        child.log = std::make_shared<AppendFile>(
            std::filesystem::path(options.log_dir) / fmt::format("rank-{}.log", child.rank),
            Existing::append);
      start(child, attempt.program,
            {{"RANK", std::to_string(child.rank)},
             {"LOCAL_RANK", std::to_string(local)},
             {"WORLD_SIZE", std::to_string(attempt.nodes * options.processes)},
             {"LOCAL_WORLD_SIZE", std::to_string(options.processes)},
             {"MASTER_ADDR", options.master_host},
             {"MASTER_PORT", std::to_string(attempt.port)},
             {"REDLINE_RUN_ID", attempt.run_id},
             {options.token_file.empty() ? "REDLINE_TOKEN" : "REDLINE_TOKEN_FILE",
              options.token_file.empty() ? attempt.token : options.token_file}});
      children_.push_back(std::move(child));
    }
  }

  ~Job() {
    send(SIGKILL);
    for (Child& child : children_)
      if (child.running) ::waitpid(child.process, &child.status, 0);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // `stop` returns whether the job ended elsewhere.
  int run(const Signal& signal, const std::function<bool()>& stop = {}) {
    for (;;) {
      read_errors(kPoll);
      collect();
      if (std::ranges::none_of(children_, &Child::running)) break;
      if (const int now = signal(); now != std::exchange(passed_, now)) send(now);
      if (stop && stop() && !failed_) failed_ = Clock::now();
      // A stopped process does not end.
      const bool stopped =
          std::ranges::any_of(children_, [](const Child& c) { return c.running && c.stopped; });
      if (failed_ && !asked_ && (stopped || Clock::now() - *failed_ > kAlone)) {
        log_warning("ending the remaining processes");
        asked_ = Clock::now();
        send(SIGTERM);
        send(SIGCONT);  // one that was stopped hears nothing else
      }
      if (asked_ && Clock::now() - *asked_ > kAsked) send(SIGKILL);
    }
    read_errors(milliseconds(0));
    return exit_code();
  }

  const std::string& why() const { return why_; }  // it ended badly: "lost rank 3, which …"

 private:
  // The default signal handling of a new program; ignored signals stay ignored.
  static void take_no_handler(int signal) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) ::signal(signal, SIG_DFL);
  }

  static void start(Child& child, const std::vector<std::string>& program, const Variables& variables) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw IoError("cannot create a pipe: {}", std::generic_category().message(errno));
    child.errors = Socket(ends[0]);
    const Socket write_end(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    const pid_t parent = ::getpid();
    // Everything that allocates memory is done before fork: another thread may hold the allocator's lock.
    const std::vector<std::string> environment = environment_with(variables);
    const std::vector<char*> arguments = pointers_to(program), settings = pointers_to(environment);
    // A signal that arrives before exec must end the child: this process's handler would lose it.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, &before);
    child.process = ::fork();
    if (child.process == 0)
      for (const int signal : {SIGINT, SIGTERM, SIGHUP}) take_no_handler(signal);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (child.process < 0)
      throw IoError("cannot start a process: {}", std::generic_category().message(errno));
    if (child.process > 0) return;
    // A separate process group: signals of a terminal reach it once, through this process. It does not
    // outlive this process.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) std::_Exit(kTryAgain);
    ::dup2(ends[1], STDERR_FILENO);
    ::execve("/proc/self/exe", arguments.data(), settings.data());
    std::perror("redline: error: cannot start the program");
    std::_Exit(static_cast<int>(ExitCode::io));
  }

  void send(int signal) const {
    for (const Child& child : children_)
      if (child.running && signal != 0) ::kill(child.process, signal);
  }

  void read_errors(milliseconds wait) {
    std::vector<pollfd> entries;
    for (const Child& child : children_)
      if (child.errors.fd() >= 0) entries.push_back({child.errors.fd(), POLLIN, 0});
    ::poll(entries.data(), entries.size(), static_cast<int>(wait.count()));
    for (Child& child : children_) {
      if (child.errors.fd() < 0) continue;
      char chunk[4096];
      ssize_t count = 0;
      while ((count = ::read(child.errors.fd(), chunk, sizeof chunk)) > 0) {
        child.unread.append(chunk, static_cast<std::size_t>(count));
        show(child);
      }
      if (count == 0) child.errors = Socket();
    }
  }

  static void show(Child& child) {
    for (std::size_t end = 0; (end = child.unread.find('\n')) != std::string::npos;
         child.unread.erase(0, end + 1)) {
      print_stderr("[rank {}] {}\n", child.rank, std::string_view(child.unread).substr(0, end));
      if (child.log) child.log->append(std::string_view(child.unread).substr(0, end + 1));
    }
  }

  void collect() {
    for (Child& child : children_) {
      int status = 0;
      if (!child.running ||
          ::waitpid(child.process, &status, WNOHANG | WUNTRACED | WCONTINUED) != child.process)
        continue;
      child.stopped = WIFSTOPPED(status);
      if (child.stopped)
        log_warning("rank {} (process {}) was stopped by signal {}: the others will wait for it", child.rank,
                    child.process, WSTOPSIG(status));
      if (child.stopped || WIFCONTINUED(status)) continue;
      child.status = status;
      child.running = false;
      if (child.good()) continue;
      if (!failed_) failed_ = Clock::now();
      if (WIFSIGNALED(child.status) && WTERMSIG(child.status) == passed_) {  // before it could say so itself
        if (cause_ == 0) cause_ = 128 + passed_;
      } else if (WIFSIGNALED(child.status)) {
        const std::string who = fmt::format("rank {} (process {})", child.rank, child.process);
        const int signal = WTERMSIG(child.status);
        log_warning("{} was killed by signal {}", who, signal);
        if (why_.empty() && !asked_)
          why_ = fmt::format("lost {}, which was killed by signal {}", who, signal);
      } else {
        const int code = WEXITSTATUS(child.status);
        if (code != kTryAgain && cause_ == 0 && !asked_) {  // else it ended because it was asked to
          cause_ = code;
          why_ = fmt::format("ended with exit code {} of rank {}", code, child.rank);
        }
      }
    }
  }

  int exit_code() const {
    if (std::ranges::all_of(children_, &Child::good)) return 0;
    return cause_ != 0 ? cause_ : kTryAgain;
  }

  std::vector<Child> children_;
  std::optional<Clock::time_point> failed_, asked_;
  int passed_ = 0;  // the signal that the processes were sent
  int cause_ = 0;   // the first exit code that is neither 0 nor 75
  std::string why_;
};

void validate(const LaunchOptions& options) {
  if (options.processes < 1 || options.processes > 4096)
    throw UsageError("-g {} must be from 1 to 4096", options.processes);
  if (options.nodes < 1) throw UsageError("--nodes {} must be at least 1", options.nodes);
  if (options.node_rank < 0 || options.node_rank >= options.nodes)
    throw UsageError("--node-rank {} must be from 0 to {}", options.node_rank, options.nodes - 1);
  if (options.min_nodes < 0 || options.min_nodes > options.nodes)
    throw UsageError("--min-nodes {} must be from 1 to --nodes {}", options.min_nodes, options.nodes);
  if (!(options.join_seconds > 0 && options.join_seconds <= 1e6))
    throw UsageError("--join-timeout {} must be above 0 and at most 1000000 seconds", options.join_seconds);
  if (options.max_restarts < 0) throw UsageError("--max-restarts {} is negative", options.max_restarts);
  if (options.nodes > 1 && options.master_port == 0)
    throw UsageError("--nodes {} needs --master HOST:PORT, where node 0 listens", options.nodes);
  if (options.nodes > 1 && options.token_file.empty())
    throw UsageError("--nodes {} needs --token-file with the same content on every machine", options.nodes);
}

void make_log_folder(const std::string& path) {
  std::error_code error;
  if (!path.empty()) std::filesystem::create_directories(path, error);
  if (error) throw IoError("cannot make the folder --log-dir {}: {}", path, error.message());
}

int launch_here(const LaunchOptions& options, const Signal& signal) {
  const std::string run_id = options.run_id.empty() ? random_text() : options.run_id;
  Attempt attempt{options.program, 0, 1, 0, {}, random_text()};
  for (int restarts = 0;; ++restarts) {
    attempt.run_id = fmt::format("{}.{}", run_id, restarts);
    attempt.port = options.master_port != 0 ? options.master_port : free_port(options.master_host);
    const int code = Job(options, attempt).run(signal);
    if (code != kTryAgain || signal() != 0 || restarts >= options.max_restarts) return code;
    if (restarts == 0)
      attempt.program.insert(attempt.program.end(), options.on_restart.begin(), options.on_restart.end());
    log_warning("restarting the job (restart {} of {})", restarts + 1, options.max_restarts);
    ::poll(nullptr, 0, static_cast<int>(kRestartPause.count()));
  }
}

// A signal that comes while no process runs.
class Interrupted : public Error {
 public:
  explicit Interrupted(int signal) : Error(static_cast<ExitCode>(128 + signal), "stopped by a signal") {}
};

// Node 0 may be about to create it, in a shared folder.
void wait_for_token(const LaunchOptions& options, const Signal& signal) {
  const Clock::time_point begun = Clock::now(), deadline = begun + seconds_of(options.join_seconds);
  struct stat file {};
  const auto missing = [&] { return ::stat(options.token_file.c_str(), &file) != 0 || file.st_size == 0; };
  for (bool told = false; missing() && Clock::now() < deadline;) {
    if (signal() != 0) throw Interrupted(signal());
    if (!told && Clock::now() - begun > kRestartPause) {
      told = true;
      log_info("waiting for the token file {}, which node 0 creates", options.token_file);
    }
    ::poll(nullptr, 0, static_cast<int>(kPoll.count()));
  }
}

int launch_on_several(const LaunchOptions& options, const Signal& signal) {
  NodesOptions together;
  together.node = options.node_rank;
  together.nodes = options.nodes;
  together.min_nodes = options.min_nodes != 0 ? options.min_nodes : options.nodes;
  together.processes = options.processes;
  together.host = options.master_host;
  together.port = options.master_port;
  together.run_id = options.run_id.empty() ? fmt::format("{}:{}", options.master_host, options.master_port)
                                           : options.run_id;
  wait_for_token(options, signal);
  together.token = read_token(options.token_file);
  together.max_restarts = options.max_restarts;
  together.patience = seconds_of(options.join_seconds);
  Nodes nodes(together);
  const auto poll = [&] {
    if (signal() != 0) throw Interrupted(signal());
  };
  int own = 0;  // of the last attempt
  const auto result = [&](const Order& end) { return own == 0 || own == kTryAgain ? end.code : own; };
  for (;;) {
    Order order;
    try {
      order = nodes.next(poll);
    } catch (const Interrupted& stopped) {
      own = own != 0 ? own : static_cast<int>(stopped.code());
      nodes.report({0, own, true, "was stopped by a signal"});
      return own;
    }
    if (order.kind == Order::Kind::end) {
      if (!order.why.empty()) log_warning("the job ends: {}", order.why);
      return result(order);
    }
    Attempt attempt{options.program, order.index, order.nodes, port_of_ranks(options.master_port),
                    order.run_id,    {}};
    if (order.attempt > 0)
      attempt.program.insert(attempt.program.end(), options.on_restart.begin(), options.on_restart.end());
    Job job(options, attempt);
    std::optional<Order> told;
    own = job.run(signal, [&] {
      if (!told) told = nodes.check();
      return told.has_value();
    });
    const bool final = signal() != 0 || (own != 0 && own != kTryAgain);
    nodes.report({order.attempt, own, final, job.why().empty() ? "lost a peer" : job.why()});
    if (told && told->kind == Order::Kind::end) return result(*told);
  }
}

}  // namespace

int launch(const LaunchOptions& options, const Signal& signal) {
  validate(options);
  make_log_folder(options.log_dir);
  const TokenFile token(options);
  return options.nodes > 1 ? launch_on_several(options, signal) : launch_here(options, signal);
}

}  // namespace redline::comm
