// Samples a thousand times a second which compute threads are computing and which wait for the others, by
// where each of them is in the program.
#pragma once

#include <cstddef>
#include <ctime>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/cpu/threads.h"
#include "backend/tracer.h"

namespace redline::backend::cpu {

// One at a time; start() and stop() are called by the thread that leads the others.
class ThreadTracer final : public Tracer {
 public:
  // Throws UnavailableError if waiting cannot be recognised here.
  explicit ThreadTracer(const Threads& threads);
  ~ThreadTracer() override;

  bool sees_kernels() const override { return false; }
  void start() override;
  void stop() override;
  std::size_t count() const override;
  std::vector<Activity> take() override;
  std::uint64_t dropped() const override { return dropped_.load(); }

  // For the signal's handler: thread `thread` is at this address of the program.
  void sample(std::uint32_t thread, std::uintptr_t address) noexcept;

 private:
  struct Sample {
    std::int64_t time;
    std::uint32_t thread;
    bool busy;
  };

  const Threads threads_;
  std::uintptr_t waiting_begin_ = 0, waiting_end_ = 0;  // the code in which threads wait: OpenMP's runtime
  std::vector<timer_t> timers_;
  std::vector<Sample> samples_;  // of a fixed size: a handler cannot allocate
  std::atomic<std::size_t> used_ = 0;
  std::atomic<std::uint64_t> dropped_ = 0;
  const std::string busy_ = "busy", waiting_ = "waiting";
};

}  // namespace redline::backend::cpu
