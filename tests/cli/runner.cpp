// Runs one text test of the command line; README.md beside this file has the format.
// Usage: cli_runner <folder of the redline binary> <source root> <file.test>
// Exit codes: 0 all as expected, 1 something was not, 2 the file is not a test, 77 skipped.
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

namespace {

namespace fs = std::filesystem;

struct Expectation {
  enum class Kind { line, pattern, absent, empty };
  Kind kind;
  bool of_stdout;
  std::string text;
  int line_number;
};

struct Step {
  std::string command;
  int line_number = 0;
  int exit_code = 0;
  std::vector<Expectation> expectations;
};

struct Script {
  std::vector<std::string> requirements;
  std::vector<Step> steps;
};

[[noreturn]] void malformed(const fs::path& file, int line_number, const std::string& why) {
  throw std::invalid_argument(fmt::format("{}:{}: {}", file.string(), line_number, why));
}

bool take_prefix(std::string& line, std::string_view prefix) {
  if (!line.starts_with(prefix)) return false;
  line.erase(0, prefix.size());
  if (line.starts_with(' ')) line.erase(0, 1);
  return true;
}

// Reads "stdout: ...", "stderr~ ..." and the like; false when the line is none of them.
bool take_expectation(std::string line, int line_number, Step& step) {
  using Kind = Expectation::Kind;
  for (const bool of_stdout : {true, false}) {
    const std::string stream = of_stdout ? "stdout" : "stderr";
    const auto add = [&](Kind kind) { step.expectations.push_back({kind, of_stdout, line, line_number}); };
    if (line == stream + "-empty") return add(Kind::empty), true;
    if (take_prefix(line, stream + ":")) return add(Kind::line), true;
    if (take_prefix(line, stream + "~")) return add(Kind::pattern), true;
    if (take_prefix(line, stream + "!")) return add(Kind::absent), true;
  }
  return false;
}

Script parse(const fs::path& file) {
  std::ifstream input(file);
  if (!input) malformed(file, 0, "cannot be read");
  Script script;
  int number = 0;
  for (std::string line; std::getline(input, line);) {
    ++number;
    if (line.empty() || line.starts_with('#')) continue;
    if (take_prefix(line, "$")) {
      script.steps.push_back({line, number, 0, {}});
    } else if (script.steps.empty()) {
      if (take_prefix(line, "skip-unless:")) {
        script.requirements.push_back(line);
      } else if (!line.starts_with("labels: ") && !line.starts_with("timeout: ")) {
        malformed(file, number, "expected a command: " + line);
      }
    } else if (take_prefix(line, "exit:")) {
      script.steps.back().exit_code = std::stoi(line);
    } else if (!take_expectation(line, number, script.steps.back())) {
      malformed(file, number, "not understood: " + line);
    }
  }
  if (script.steps.empty()) malformed(file, number, "has no command");
  return script;
}

// The exit code as a shell shows it: 128+N for signal N.
int shell(const std::string& command) {
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child) throw std::runtime_error("waitpid failed");
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::vector<std::string> read_lines(const fs::path& path) {
  std::ifstream input(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(input, line);) lines.push_back(line);
  return lines;
}

// Checks one stream of one step; gives the complaints.
std::vector<std::string> check_stream(const Step& step, bool of_stdout,
                                      const std::vector<std::string>& lines) {
  using Kind = Expectation::Kind;
  std::vector<std::string> complaints;
  std::size_t next = 0;  // lines before this one were matched
  for (const Expectation& expectation : step.expectations) {
    if (expectation.of_stdout != of_stdout) continue;
    const auto complain = [&](const std::string& what) {
      complaints.push_back(
          fmt::format("line {}: {} {}", expectation.line_number, of_stdout ? "stdout" : "stderr", what));
    };
    if (expectation.kind == Kind::empty) {
      if (!lines.empty()) complain("is not empty");
      continue;
    }
    const bool exact = expectation.kind == Kind::line;
    const std::regex pattern(exact ? std::string() : expectation.text);
    const auto matches = [&](const std::string& line) {
      return exact ? line == expectation.text : std::regex_search(line, pattern);
    };
    if (expectation.kind == Kind::absent) {
      for (const std::string& line : lines) {
        if (matches(line)) complain("has a line it must not have: " + line);
      }
      continue;
    }
    std::size_t at = next;
    while (at < lines.size() && !matches(lines[at])) ++at;
    if (at == lines.size()) {
      complain("lacks, or has out of order: " + expectation.text);
    } else {
      next = at + 1;
    }
  }
  return complaints;
}

bool run_step(const Step& step, const fs::path& captures) {
  const fs::path out = captures / "stdout", err = captures / "stderr";
  // A group, so that the redirections hold for every command of the line.
  const int code =
      shell(fmt::format("{{ {}\n}} >'{}' 2>'{}' </dev/null", step.command, out.string(), err.string()));
  const std::vector<std::string> out_lines = read_lines(out), err_lines = read_lines(err);
  std::vector<std::string> complaints = check_stream(step, true, out_lines);
  for (std::string& complaint : check_stream(step, false, err_lines))
    complaints.push_back(std::move(complaint));
  if (code != step.exit_code) {
    complaints.insert(complaints.begin(), fmt::format("exit code {}, expected {}", code, step.exit_code));
  }
  fmt::print("{} line {}: $ {}\n", complaints.empty() ? "ok    " : "FAILED", step.line_number, step.command);
  if (complaints.empty()) return true;
  for (const std::string& complaint : complaints) fmt::print("    {}\n", complaint);
  fmt::print("  stdout was:\n");
  for (const std::string& line : out_lines) fmt::print("    {}\n", line);
  fmt::print("  stderr was:\n");
  for (const std::string& line : err_lines) fmt::print("    {}\n", line);
  return false;
}

class WorkFolder {
 public:
  WorkFolder() {
    std::string name = (fs::temp_directory_path() / "redline-cli-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
    fs::create_directories(path_ / "work");
    fs::current_path(path_ / "work");
  }
  ~WorkFolder() {
    std::error_code ignored;
    fs::current_path("/", ignored);
    fs::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

int run(const fs::path& binaries, const fs::path& source, const fs::path& file) {
  const Script script = parse(fs::absolute(file));
  const char* path = std::getenv("PATH");
  ::setenv("PATH", (binaries.string() + ":" + (path == nullptr ? "/usr/bin:/bin" : path)).c_str(), 1);
  ::setenv("SOURCE", source.c_str(), 1);
  const WorkFolder folder;
  for (const std::string& requirement : script.requirements) {
    if (shell("{ " + requirement + "\n} >/dev/null 2>&1 </dev/null") != 0) {
      fmt::print("skipped: this machine does not pass: {}\n", requirement);
      return 77;
    }
  }
  bool passed = true;
  for (const Step& step : script.steps) passed = run_step(step, folder.path()) && passed;
  return passed ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: cli_runner <folder of redline> <source root> <file.test>\n");
    return 2;
  }
  try {
    return run(argv[1], argv[2], argv[3]);
  } catch (const std::exception& e) {
    fmt::print(stderr, "cli_runner: {}\n", e.what());
    return 2;
  }
}
