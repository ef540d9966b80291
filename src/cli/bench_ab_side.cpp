#include "cli/bench_ab_side.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/statistics.h"

namespace redline::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kTurn = 20;              // milliseconds between checks of the process
constexpr double kAsked = 1.5;         // seconds that it has to stop when asked to
constexpr std::size_t kTailLines = 5;  // of its output that are shown when it fails

// "NAME=value", as in env(1).
bool is_assignment(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == 0 || equals == word.npos) return false;
  return std::ranges::all_of(word.substr(0, equals),
                             [](unsigned char c) { return std::isalnum(c) || c == '_'; }) &&
         std::isdigit(static_cast<unsigned char>(word[0])) == 0;
}

bool names(const std::string& word, std::string_view flag) {
  return word == flag || (word.starts_with(flag) && word[flag.size()] == '=');
}

bool sets_length(const std::string& word) {
  return names(word, "--steps") || names(word, "--epochs") ||
         (word.starts_with("-e") && !word.starts_with("--"));
}

std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("-_=./:,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// Seconds of all processors since boot.
struct ProcessorTimes {
  double busy = 0, steal = 0, all = 0;
};

std::optional<ProcessorTimes> read_processor_times() {
  std::ifstream file("/proc/stat");
  std::string label;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  if (!(file >> label >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal) ||
      label != "cpu")
    return {};
  const auto tick = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const double busy = user + nice + system + irq + softirq;
  return ProcessorTimes{busy / tick, steal / tick, (busy + idle + iowait + steal) / tick};
}

double cpu_seconds(const rusage& used) {
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

Disturbance disturbance(const std::optional<ProcessorTimes>& before, double own_seconds,
                        double wall_seconds) {
  Disturbance found;
  double load = 0;
  if (std::ifstream("/proc/loadavg") >> load) found.load = load;
  const std::optional<ProcessorTimes> after = read_processor_times();
  if (!before || !after || wall_seconds <= 0 || after->all <= before->all) return found;
  found.other_cores = std::max(0.0, (after->busy - before->busy - own_seconds) / wall_seconds);
  found.steal = (after->steal - before->steal) / (after->all - before->all);
  return found;
}

[[noreturn]] void become(const SideCommand& command, const std::vector<std::string>& words,
                         const fs::path& output, pid_t parent) {
  // Its own process group, so that signals of the terminal reach it only through this process. It does not
  // outlive this process.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) std::_Exit(static_cast<int>(ExitCode::try_again));
  for (const auto& [name, value] : command.environment) ::setenv(name.c_str(), value.c_str(), 1);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int file = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ::dup2(null, STDIN_FILENO);
  ::dup2(file, STDOUT_FILENO);
  ::dup2(file, STDERR_FILENO);
  const char* program = command.program.empty() ? "/proc/self/exe" : command.program.c_str();
  std::vector<char*> arguments = {const_cast<char*>(command.program.empty() ? "redline" : program)};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execv(program, arguments.data());
  std::perror("cannot start the program");
  std::_Exit(static_cast<int>(ExitCode::io));
}

struct Ended {
  int status = 0;
  rusage used{};
  bool stopped = false;  // by us
};

Ended wait_for(pid_t process, const std::atomic<bool>& stop) {
  Ended ended;
  Stopwatch asked;
  while (::wait4(process, &ended.status, WNOHANG, &ended.used) == 0) {
    if (stop.load(std::memory_order_relaxed) && !ended.stopped) {
      ::kill(-process, SIGTERM);  // with what it started
      ended.stopped = true;
      asked.restart();
    }
    if (ended.stopped && asked.seconds() > kAsked) ::kill(-process, SIGKILL);
    ::poll(nullptr, 0, kTurn);
  }
  return ended;
}

std::string last_lines(const fs::path& file) {
  std::ifstream input(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(input, line);)
    if (!line.empty()) lines.push_back(line);
  std::string text;
  for (std::size_t i = lines.size() - std::min(lines.size(), kTailLines); i < lines.size(); ++i)
    text += "\n  " + lines[i];
  return text;
}

void check_success(bench::Side side, const SideCommand& command, int status, const fs::path& output) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  const std::string how = WIFEXITED(status) ? fmt::format("ended with exit code {}", code)
                                            : fmt::format("was killed by signal {}", code - 128);
  throw Error(static_cast<ExitCode>(code),
              fmt::format("side {} {}: {}{}", letter(side), how, command.text(), last_lines(output)));
}

}  // namespace

std::string SideCommand::text() const {
  std::string text;
  for (const auto& [name, value] : environment) text += fmt::format("{}={} ", name, quoted(value));
  text += program.empty() ? "redline" : quoted(program);
  for (const std::string& word : words) text += " " + quoted(word);
  return text;
}

SideCommand parse_side(bench::Side side, const std::string& binary, const std::string& data,
                       const std::vector<std::string>& common, std::vector<std::string> words) {
  SideCommand command;
  command.program = binary;
  auto word = words.begin();
  for (; word != words.end() && is_assignment(*word); ++word) {
    const std::size_t equals = word->find('=');
    command.environment.emplace_back(word->substr(0, equals), word->substr(equals + 1));
  }
  if (word != words.end() && !word->starts_with('-') && word->find('/') != word->npos)
    command.program = *word++;
  if (!command.program.empty() && ::access(command.program.c_str(), X_OK) != 0)
    throw UsageError("side {}: cannot run the program {}: {}", letter(side), command.program,
                     std::generic_category().message(errno));
  if (word != words.end() && *word == "train") {
    const auto options =
        std::find_if(word, words.end(), [](const std::string& one) { return one.starts_with('-'); });
    command.words.assign(word, options);
    word = options;
  } else if (word != words.end() && !word->starts_with('-')) {
    throw UsageError(
        "side {}: '{}' is not an option of train; give the data with --data, or the whole command: train {} "
        "…",
        letter(side), *word, *word);
  } else {
    command.words = {"train", data};
  }
  // The last of a repeated option wins: the side's own.
  command.words.insert(command.words.end(), common.begin(), common.end());
  command.words.insert(command.words.end(), word, words.end());
  for (const std::string& given : command.words) {
    for (const std::string_view own :
         {"--output-dir", "-o", "--name", "--resume", "--repeat", "--dry-run", "--print-config"})
      if (names(given, own))
        throw UsageError("side {}: leave out {}: every run of bench ab is new, in a temporary folder",
                         letter(side), own);
    command.sets_length = command.sets_length || sets_length(given);
  }
  return command;
}

SideRun measure_run(const report::Run& run, std::int64_t warmup) {
  const report::Steps& steps = run.steps;
  SideRun measured;
  double images = 0, seconds = 0;
  std::vector<double> times;
  const auto known = [](double value) { return std::isfinite(value) ? value : 0; };
  for (auto i = static_cast<std::size_t>(warmup); i < steps.size(); ++i) {
    if (!(steps.seconds[i] > 0) || !std::isfinite(steps.samples[i])) continue;
    images += steps.samples[i];
    seconds += steps.seconds[i] + known(steps.gap_seconds[i]) - known(steps.evaluation_seconds[i]);
    times.push_back(steps.seconds[i]);
  }
  if (times.empty() || !(images > 0))
    throw DataError("a run of {} steps leaves none to measure after --warmup {}", steps.size(), warmup);
  measured.images_per_second = images / seconds;
  measured.steps = static_cast<std::int64_t>(times.size());
  measured.step_seconds = median(std::move(times));
  for (const metrics::Notice& notice : run.notices)
    if (notice.what == "disturbed" || notice.what == "bound") measured.notices.push_back(notice.text);
  return measured;
}

nlohmann::ordered_json to_json(const SideRun& run) {
  const auto maybe = [](const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  return {{"images_per_second", run.images_per_second},
          {"step_seconds_p50", run.step_seconds},
          {"steps", run.steps},
          {"wall_seconds", run.wall_seconds},
          {"startup_seconds", run.startup_seconds},
          {"load", maybe(run.disturbance.load)},
          {"other_cores", maybe(run.disturbance.other_cores)},
          {"steal", maybe(run.disturbance.steal)},
          {"notices", run.notices}};
}

std::optional<SideRun> run_side(bench::Side side, const SideCommand& command, const SideOptions& options,
                                const std::atomic<bool>& stop, report::Run* record) {
  const fs::path output = options.folder / "output", folder = options.folder / "runs";
  std::vector<std::string> words = command.words;
  if (options.steps && !command.sets_length)
    words.insert(words.end(), {"--steps", std::to_string(*options.steps)});
  words.insert(words.end(), {"--output-dir", folder.string(), "--name", "run", "--quiet"});
  const std::optional<ProcessorTimes> before = read_processor_times();
  const Stopwatch watch;
  const pid_t parent = ::getpid(), process = ::fork();
  if (process < 0) throw IoError("cannot start a process: {}", std::generic_category().message(errno));
  if (process == 0) become(command, words, output, parent);
  ::setpgid(process, process);  // as it does itself, whoever comes first
  const Ended ended = wait_for(process, stop);
  const double wall = watch.seconds();
  if (ended.stopped) return {};
  check_success(side, command, ended.status, output);
  const report::Run run = report::read_run(folder / "run");
  SideRun measured = measure_run(run, options.warmup);
  measured.wall_seconds = wall;
  measured.startup_seconds = run.end ? wall - run.end->seconds : 0;
  measured.disturbance = disturbance(before, cpu_seconds(ended.used), wall);
  if (record != nullptr) *record = run;
  fs::remove_all(folder);
  return measured;
}

}  // namespace redline::cli
