// This process and others of this machine.
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace redline {

// Whether a process of this id runs. One that has ended but was not waited for by its parent does not.
bool is_running(pid_t process);

// The folder in which the running program lies, which what belongs to it is found from; empty when the system
// does not tell.
std::filesystem::path program_folder();

}  // namespace redline
