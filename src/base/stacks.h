// What the threads of this process are at: to explain one that hangs.
#pragma once

#include <string>

namespace redline {

// Loads what thread_stacks() needs, so that it works when little else does, and takes a real-time signal for
// it. Any thread, any number of times.
void prepare_stacks();

// The stack of every thread, innermost call first, with the names of functions; threads at the same place
// together. One that does not answer within a second is told with its state in the kernel. One thread at a
// time. Calls of the system that a thread waits in may be broken off with EINTR.
std::string thread_stacks();

}  // namespace redline
