#include "base/process.h"

#include <signal.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <system_error>

namespace redline {

bool is_running(pid_t process) {
  if (process <= 0) return false;
  if (::kill(process, 0) != 0 && errno == ESRCH) return false;
  // "123 (name) Z ...": the name may contain anything, including brackets. Without /proc, the process is
  // assumed to run.
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t bracket = line.rfind(')');
  if (bracket == line.npos || bracket + 2 >= line.size()) return true;
  const char state = line[bracket + 2];
  return state != 'Z' && state != 'X';
}

std::filesystem::path program_folder() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::filesystem::path() : program.parent_path();
}

ScopedEnvironment::ScopedEnvironment(const std::map<std::string, std::string>& variables) {
  for (const auto& [name, value] : variables) {
    if (value.empty()) continue;
    const char* former = std::getenv(name.c_str());
    former_[name] = former == nullptr ? std::nullopt : std::optional<std::string>(former);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
}

ScopedEnvironment::~ScopedEnvironment() {
  for (const auto& [name, former] : former_)
    former ? ::setenv(name.c_str(), former->c_str(), 1) : ::unsetenv(name.c_str());
}

}  // namespace redline
