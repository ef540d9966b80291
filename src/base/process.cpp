#include "base/process.h"

#include <signal.h>

#include <cerrno>
#include <fstream>
#include <string>
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

}  // namespace redline
