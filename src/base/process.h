// This process and others of this machine.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace redline {

// Whether a process of this id is running. A zombie is not.
bool is_running(pid_t process);

// The folder of the running program, to find its other files; empty if unknown.
std::filesystem::path program_folder();

// Sets environment variables until it is destroyed, which restores their former values. Variables with an
// empty value are left alone. Not for use while other threads read the environment.
class ScopedEnvironment {
 public:
  explicit ScopedEnvironment(const std::map<std::string, std::string>& variables);
  ~ScopedEnvironment();
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> former_;
};

}  // namespace redline
