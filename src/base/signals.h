// Stopping politely. While a StopSignals lives, the first SIGINT, SIGTERM, SIGUSR1 (which schedulers send
// ahead of a preemption) or SIGHUP only raises a flag that long work polls (finish the step, write a
// checkpoint, leave); a second one ends the process at once with 128+signal. The same one again within a
// quarter of a second is not a second one: timeout(1) and schedulers signal a process and then its group.
// SIGHUP is a terminal that was closed: it may come several times, so the later ones do nothing, and what is
// still written to the terminal is dropped instead of failing. Where it was ignored, as nohup has it, it
// stays so. While nothing would be lost (end_at_once), the first one ends the process. Commands that hold no
// StopSignals keep the system's behaviour: they die at the first.
#pragma once

#include <array>
#include <atomic>
#include <csignal>

namespace redline {

class StopSignals {
 public:
  // Installs the handlers. Only one may live at a time (InternalError otherwise).
  StopSignals();
  // Puts back the handlers that were there.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Any thread. The reference is valid for the whole program.
  const std::atomic<bool>& flag() const;
  bool requested() const { return flag().load(std::memory_order_relaxed); }
  int signal() const;  // which one came; 0 while none did

  // Whether the first signal ends the process at once, with 128+signal: for set-ups, which poll nothing and
  // leave nothing. What can be started again ends with 75 for all but SIGINT, as it would after them.
  void end_at_once(bool yes, bool again = false);

 private:
  std::array<struct sigaction, 4> old_{};  // as in signals.cpp's list
};

}  // namespace redline
