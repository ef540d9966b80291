// Stands in for CUPTI on a machine whose driver keeps counters for administrators: all of it is the real
// library's, whose path $CUPTI says, but for counters, which are refused as that driver would.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#define ALL(CALL)                         \
  CALL(cuptiActivityDisable)              \
  CALL(cuptiActivityEnable)               \
  CALL(cuptiActivityFlushAll)             \
  CALL(cuptiActivityGetNextRecord)        \
  CALL(cuptiActivityGetNumDroppedRecords) \
  CALL(cuptiActivityRegisterCallbacks)    \
  CALL(cuptiDeviceGetChipName)            \
  CALL(cuptiEnableCallback)               \
  CALL(cuptiGetCallbackName)              \
  CALL(cuptiGetGraphNodeId)               \
  CALL(cuptiGetResultString)              \
  CALL(cuptiGetTimestamp)                 \
  CALL(cuptiProfilerDeInitialize)         \
  CALL(cuptiProfilerInitialize)           \
  CALL(cuptiSubscribe)                    \
  CALL(cuptiUnsubscribe)

// A function of each name that jumps to the real one, whatever its arguments are.
#define JUMP(name)                                                    \
  extern "C" __attribute__((visibility("hidden"))) void* real_##name; \
  void* real_##name = nullptr;                                        \
  asm(".text\n.globl " #name "\n.type " #name ",@function\n" #name ":\n  jmp *real_" #name "(%rip)\n");
ALL(JUMP)

extern "C" int cuptiProfilerGetCounterAvailability(void*) {
  return 35;  // CUPTI_ERROR_INSUFFICIENT_PRIVILEGES
}

namespace {

struct Load {
  Load() {
    const char* path = std::getenv("CUPTI");
    void* real = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    bool whole = real != nullptr;
#define FIND(name) whole = whole && (real_##name = ::dlsym(real, #name)) != nullptr;
    ALL(FIND)
    if (whole) return;
    std::fprintf(stderr, "the real CUPTI cannot be used: CUPTI=%s\n", path == nullptr ? "" : path);
    std::abort();
  }
} load;

}  // namespace
