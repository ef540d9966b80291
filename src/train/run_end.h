// How a run ends: its last checkpoint, what disturbed it, and the summary, whether it finished, was
// interrupted or failed.
#pragma once

#include <cstdint>
#include <string>

#include "base/signals.h"
#include "metrics/recorder.h"
#include "profile/telemetry.h"
#include "train/checkpointer.h"
#include "train/session.h"
#include "train/trainer.h"

namespace redline::train {

// Telemetry of a run's devices, and where the run began.
struct Sampled {
  profile::Telemetry* telemetry = nullptr;  // none: nothing is known
  bool host_computes = false;
  std::int64_t ranks = 1;
  std::int64_t steps = 0, samples = 0;  // done before this process
};

// Goes before the command that resumes a run: "start 3 ranks of ", or nothing for a single rank.
std::string ranks_of(std::int64_t count);

// Ends a run that was stopped by `signal`, or that finished (0): takes the last checkpoint, if there is a
// checkpointer, and records the end. False if that checkpoint could not be written.
bool finish(metrics::Recorder& recorder, Trainer& trainer, Checkpointer* checkpointer,
            const StopSignals& signals, int signal, const Sampled& sampled, Outcome& outcome);

// Ends a run that failed with `what`. Does not throw: a second failure must not hide the first.
void leave_after_failure(metrics::Recorder& recorder, Trainer& trainer, Checkpointer* checkpointer,
                         const StopSignals& signals, const Sampled& sampled, const char* what);

}  // namespace redline::train
