// The stacks of this process's threads, to explain a hang.
#pragma once

#include <string>

namespace redline {

// Loads what thread_stacks() needs, so that it works even in a broken process, and reserves a real-time
// signal for it. May be called from any thread, any number of times.
void prepare_stacks();

// The stack of every thread, innermost call first, with function names; threads with the same stack are shown
// together. A thread that does not answer within a second is shown with its state in the kernel. Call it from
// one thread at a time. System calls of other threads may fail with EINTR.
std::string thread_stacks();

// The name of a C++ function or kernel as it is written, from its symbol; any other name as it is.
std::string demangled(const char* symbol);

}  // namespace redline
