// This process and others of this machine.
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace redline {

// Whether a process of this id runs. One that has ended but was not waited for by its parent does not.
bool is_running(pid_t process);

// The folder of the running program, from which its other files are found; empty when the system does not
// tell.
std::filesystem::path program_folder();

}  // namespace redline
