// Other processes of this machine.
#pragma once

#include <sys/types.h>

namespace redline {

// Whether a process of this id runs. One that has ended but was not waited for by its parent does not.
bool is_running(pid_t process);

}  // namespace redline
