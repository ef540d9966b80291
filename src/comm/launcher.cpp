#include "comm/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/wire.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTurn{50};
// What is left of a job after one process ended badly has this long to end by itself, and this long after
// being asked to.
constexpr milliseconds kAlone{15'000}, kAsked{30'000};
constexpr milliseconds kRestartPause{1'000};
constexpr int kTryAgain = static_cast<int>(ExitCode::try_again);

std::string random_text() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    throw IoError("the system gives no random numbers");
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

void make_token_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0 && errno == EEXIST) return;
  const Socket file(fd);
  const std::string text = random_text() + "\n";
  if (fd < 0 || ::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw IoError("cannot write the token file {}: {}", path, std::generic_category().message(errno));
}

// A port of the loopback address that is free now.
std::uint16_t free_port(const std::string& host) {
  const std::string address = own_address(listen_at(host, 0, false), true);
  return static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
}

struct Child {
  int rank = 0;
  pid_t process = -1;
  Socket errors;       // its stderr
  std::string unread;  // of it, a line that is not whole
  bool running = true, stopped = false;
  int status = 0;

  bool good() const { return !running && WIFEXITED(status) && WEXITSTATUS(status) == 0; }
};

class Job {
 public:
  Job(const LaunchOptions& options, const std::vector<std::string>& program, const std::string& run_id,
      const std::string& token)
      : options_(options) {
    const std::uint16_t port =
        options.master_port != 0 ? options.master_port : free_port(options.master_host);
    for (int local = 0; local < options.processes; ++local) {
      Child child;
      child.rank = options.node_rank * options.processes + local;
      start(child, program,
            {{"RANK", std::to_string(child.rank)},
             {"LOCAL_RANK", std::to_string(local)},
             {"WORLD_SIZE", std::to_string(options.nodes * options.processes)},
             {"LOCAL_WORLD_SIZE", std::to_string(options.processes)},
             {"MASTER_ADDR", options.master_host},
             {"MASTER_PORT", std::to_string(port)},
             {"REDLINE_RUN_ID", run_id},
             {options.token_file.empty() ? "REDLINE_TOKEN" : "REDLINE_TOKEN_FILE",
              options.token_file.empty() ? token : options.token_file}});
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

  int run(const Signal& signal) {
    for (int passed = 0;;) {
      read_errors(kTurn);
      collect();
      if (std::ranges::none_of(children_, &Child::running)) break;
      if (const int now = signal(); now != std::exchange(passed, now)) send(now);
      // One that is stopped does not end by itself.
      const bool stopped =
          std::ranges::any_of(children_, [](const Child& c) { return c.running && c.stopped; });
      if (failed_ && !asked_ && (stopped || Clock::now() - *failed_ > kAlone)) {
        log_warning("ending the processes that are left");
        asked_ = Clock::now();
        send(SIGTERM);
        send(SIGCONT);  // one that was stopped hears nothing else
      }
      if (asked_ && Clock::now() - *asked_ > kAsked) send(SIGKILL);
    }
    read_errors(milliseconds(0));
    return exit_code();
  }

 private:
  using Variables = std::vector<std::pair<const char*, std::string>>;

  static void start(Child& child, const std::vector<std::string>& program, const Variables& variables) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw IoError("cannot make a pipe: {}", std::generic_category().message(errno));
    child.errors = Socket(ends[0]);
    const Socket write_end(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    const pid_t parent = ::getpid();
    child.process = ::fork();
    if (child.process < 0)
      throw IoError("cannot start a process: {}", std::generic_category().message(errno));
    if (child.process > 0) return;
    // A group of its own: a terminal's signals reach it once, through this process. It does not outlive it.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) std::_Exit(kTryAgain);
    for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
    ::dup2(ends[1], STDERR_FILENO);
    std::vector<char*> arguments;
    for (const std::string& word : program) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execv("/proc/self/exe", arguments.data());
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
         child.unread.erase(0, end + 1))
      fmt::print(stderr, "[rank {}] {}\n", child.rank, std::string_view(child.unread).substr(0, end));
  }

  void collect() {
    for (Child& child : children_) {
      int status = 0;
      if (!child.running ||
          ::waitpid(child.process, &status, WNOHANG | WUNTRACED | WCONTINUED) != child.process)
        continue;
      child.stopped = WIFSTOPPED(status);
      if (child.stopped || WIFCONTINUED(status)) continue;
      child.status = status;
      child.running = false;
      if (child.good()) continue;
      if (!failed_) failed_ = Clock::now();
      if (WIFSIGNALED(child.status)) {
        log_warning("rank {} (process {}) was killed by signal {}", child.rank, child.process,
                    WTERMSIG(child.status));
      } else {
        const int code = WEXITSTATUS(child.status);
        if (code != kTryAgain && cause_ == 0 && !asked_)
          cause_ = code;  // else it ended because it was asked to
      }
    }
  }

  int exit_code() const {
    if (std::ranges::all_of(children_, &Child::good)) return 0;
    return cause_ != 0 ? cause_ : kTryAgain;
  }

  const LaunchOptions& options_;
  std::vector<Child> children_;
  std::optional<Clock::time_point> failed_, asked_;
  int cause_ = 0;  // the first exit code that is neither 0 nor 75
};

void validate(const LaunchOptions& options) {
  if (options.processes < 1 || options.processes > 4096)
    throw UsageError("-g {} must be from 1 to 4096", options.processes);
  if (options.nodes < 1) throw UsageError("--nodes {} must be at least 1", options.nodes);
  if (options.node_rank < 0 || options.node_rank >= options.nodes)
    throw UsageError("--node-rank {} must be from 0 to {}", options.node_rank, options.nodes - 1);
  if (options.max_restarts < 0) throw UsageError("--max-restarts {} is negative", options.max_restarts);
  if (options.nodes > 1 && options.master_port == 0)
    throw UsageError("--nodes {} needs --master HOST:PORT, where node 0 listens", options.nodes);
  if (options.nodes > 1 && options.token_file.empty())
    throw UsageError("--nodes {} needs --token-file with the same content on every machine", options.nodes);
}

}  // namespace

int launch(const LaunchOptions& options, const Signal& signal) {
  validate(options);
  if (!options.token_file.empty() && options.node_rank == 0) make_token_file(options.token_file);
  const std::string run_id = !options.run_id.empty() ? options.run_id
                             : options.nodes > 1
                                 ? fmt::format("{}:{}", options.master_host, options.master_port)
                                 : random_text();
  const std::string token = random_text();
  std::vector<std::string> program = options.program;
  for (int attempt = 0;; ++attempt) {
    const int code = Job(options, program, fmt::format("{}.{}", run_id, attempt), token).run(signal);
    if (code != kTryAgain || signal() != 0 || attempt >= options.max_restarts) return code;
    if (attempt == 0) program.insert(program.end(), options.on_restart.begin(), options.on_restart.end());
    log_warning("starting the job again, time {} of {}", attempt + 1, options.max_restarts);
    ::poll(nullptr, 0, static_cast<int>(kRestartPause.count()));
  }
}

}  // namespace redline::comm
