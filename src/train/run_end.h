// How a run ends: its last checkpoint, what disturbed it, and the summary, whether it finished, was
// interrupted or failed.
#pragma once

#include <cstdint>

#include "base/signals.h"
#include "metrics/recorder.h"
#include "profile/telemetry.h"
#include "train/checkpointer.h"
#include "train/session.h"
#include "train/trainer.h"

namespace redline::train {

// What tells how a run's devices fared, and where it began.
struct Sampled {
  profile::Telemetry* telemetry = nullptr;  // none: nothing is known
  bool host_computes = false;
  std::int64_t ranks = 1;
  std::int64_t steps = 0, samples = 0;  // done before this process
};

// Ends a run that `signal` ended, or that finished (0): takes the last checkpoint, where there is a
// checkpointer, and tells the end. False when the file system did not take that checkpoint.
bool finish(metrics::Recorder& recorder, Trainer& trainer, Checkpointer* checkpointer,
            const StopSignals& signals, int signal, const Sampled& sampled, Outcome& outcome);

// Ends a run that failed by `what`. Does not throw: a second failure on the way must not hide the first.
void leave_after_failure(metrics::Recorder& recorder, Trainer& trainer, Checkpointer* checkpointer,
                         const StopSignals& signals, const Sampled& sampled, const char* what);

}  // namespace redline::train
