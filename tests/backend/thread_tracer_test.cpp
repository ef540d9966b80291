#include "backend/cpu/thread_tracer.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace redline::backend::cpu {
namespace {

#if defined(__x86_64__)
// Counts down with the stack pointer at `top`, as kernels do that use it for something else.
__attribute__((noinline)) void count_down_on(std::uint64_t* top, std::uint64_t count) {
  asm volatile(
      "mov %%rsp, %%r15\n\t"
      "mov %[top], %%rsp\n\t"
      "1: dec %[count]\n\t"
      "jnz 1b\n\t"
      "mov %%r15, %%rsp\n\t"
      : [count] "+r"(count)
      : [top] "r"(top)
      : "r15", "memory", "cc");
}

TEST(ThreadTracer, SamplesLeaveTheMemoryAtTheStackPointerAlone) {
  const Threads threads(1, false);
  std::unique_ptr<ThreadTracer> tracer;
  try {
    tracer = std::make_unique<ThreadTracer>(threads);
  } catch (const UnavailableError& reason) {
    GTEST_SKIP() << reason.what();
  }
  constexpr std::uint64_t kUntouched = 0x5eed5eed5eed5eedU;
  std::vector<std::uint64_t> memory(1 << 17, kUntouched);  // more than a signal's frame takes
  tracer->start();
  for (int i = 0; i < 100 && tracer->count() < 20; ++i)
    count_down_on(memory.data() + memory.size() / 2, 20'000'000);
  tracer->stop();
  EXPECT_GE(tracer->count(), 20U) << "it was sampled";
  EXPECT_EQ(std::ranges::count(memory, kUntouched), static_cast<std::ptrdiff_t>(memory.size()));
}
#endif

}  // namespace
}  // namespace redline::backend::cpu
