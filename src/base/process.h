// This process and others of this machine.
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace redline {

// Whether a process of this id is running. A zombie is not.
bool is_running(pid_t process);

// The folder of the running program, to find its other files; empty if unknown.
std::filesystem::path program_folder();

}  // namespace redline
