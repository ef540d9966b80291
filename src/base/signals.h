// Graceful stops. While a StopSignals lives, the first SIGINT, SIGTERM, SIGUSR1 (which schedulers send ahead
// of a preemption) or SIGHUP only raises a flag that long work polls (finish the step, write a checkpoint,
// leave); a second one ends the process at once with 128+signal. The same signal within a quarter of a second
// does not count as a second one: timeout(1) and schedulers signal a process and then its group. SIGHUP means
// a closed terminal: it may come several times, so later ones do nothing, and further output to the terminal
// is dropped instead of failing. If it was ignored before, as under nohup, it stays ignored. While nothing
// would be lost (end_at_once), the first signal ends the process. Commands without a StopSignals keep the
// default behaviour: the first signal ends them.
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

  // Whether the first signal ends the process at once, with 128+signal: for set-up code, which does not poll
  // and has nothing to save. With `again`, the exit code is 75 for all but SIGINT, as for a run that can be
  // resumed.
  void end_at_once(bool yes, bool again = false);

 private:
  std::array<struct sigaction, 4> old_{};  // as in signals.cpp's list
};

// From now on, a write to a pipe that nobody reads fails, instead of ending the process.
void outlive_readers();

}  // namespace redline
