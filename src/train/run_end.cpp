#include "train/run_end.h"

#include <csignal>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "profile/disturbance.h"

namespace redline::train {
namespace {

const char* signal_name(int signal) {
  return signal == SIGINT    ? "SIGINT"
         : signal == SIGUSR1 ? "SIGUSR1"
         : signal == SIGHUP  ? "SIGHUP"
                             : "SIGTERM";
}

// Preempted processes are killed half a minute after their warning, so waiting ends before that.
constexpr double kSignalSeconds = 25;

// The last checkpoint of a run, however it ended. False if it could not be written.
bool last_checkpoint(Trainer& trainer, Checkpointer& checkpointer, const StopSignals& signals) {
  const StepClock::Span span = trainer.at_checkpoint();
  const Stopwatch watch;
  const auto wait = [&] {
    for (bool told = false; !checkpointer.wait(0.5);) {
      const double limit = signals.requested() ? kSignalSeconds : std::numeric_limits<double>::infinity();
      if (watch.seconds() > limit) return false;
      if (!told && watch.seconds() > 5) log_info("waiting for a checkpoint to be written");
      told = told || watch.seconds() > 5;
    }
    return true;
  };
  bool written = wait();
  if (written) {
    trainer.save_checkpoint();
    written = wait();
  }
  trainer.report_checkpoints();
  if (!written) {
    checkpointer.abandon();
    log_warning("{} does not answer: leaving without a checkpoint of the last steps",
                checkpointer.folder().string());
  }
  return written && checkpointer.newest() == trainer.progress().step;
}

// Records what disturbed a run or bounds its speed, and then its end.
void tell_end(metrics::Recorder& recorder, metrics::End end, const Sampled& sampled) {
  if (sampled.telemetry != nullptr) {
    const profile::TelemetrySummary whole = sampled.telemetry->whole();
    for (const profile::Finding& found : profile::findings(whole, sampled.host_computes, sampled.ranks == 1))
      recorder.notice({end.steps, found.what, found.text});
    // Ranks on one CPU share its counters of energy.
    if (whole.joules && (sampled.ranks == 1 || !sampled.host_computes)) {
      end.energy_j = whole.joules;
      end.energy_steps = end.steps - sampled.steps;
      end.energy_samples = (end.samples - sampled.samples) / sampled.ranks;
    }
  }
  recorder.end(end);
}

std::string why_finished(const Trainer& trainer) {
  if (!trainer.out_of_patience()) return {};
  return fmt::format("no better evaluation since epoch {}", trainer.progress().best->epoch);
}

}  // namespace

std::string ranks_of(std::int64_t count) {
  return count == 1 ? "" : fmt::format("start {} ranks of ", count);
}

bool finish(metrics::Recorder& recorder, Trainer& trainer, Checkpointer* checkpointer,
            const StopSignals& signals, int signal, const Sampled& sampled, Outcome& outcome) {
  bool saved = true;
  if (checkpointer != nullptr) {
    saved = trainer.can_save() ? last_checkpoint(trainer, *checkpointer, signals)
                               : checkpointer->wait(kSignalSeconds);
    outcome.checkpointed = checkpointer->newest().has_value();
  }
  outcome.signal = signal;
  tell_end(recorder,
           signal == 0 ? trainer.summary("finished", why_finished(trainer))
                       : trainer.summary("interrupted", signal_name(outcome.signal)),
           sampled);
  return saved;
}

void leave_after_failure(metrics::Recorder& recorder, Trainer& trainer, Checkpointer* checkpointer,
                         const StopSignals& signals, const Sampled& sampled, const char* what) {
  try {
    if (checkpointer != nullptr && trainer.can_save()) last_checkpoint(trainer, *checkpointer, signals);
    if (checkpointer != nullptr && checkpointer->newest())
      log_warning("--resume continues from {}: {}redline train --resume {}",
                  checkpoint_name(*checkpointer->newest()), ranks_of(sampled.ranks),
                  checkpointer->folder().parent_path().string());
    tell_end(recorder, trainer.summary("failed", what), sampled);
  } catch (const std::exception& second) {
    log_warning("{}", second.what());
  }
}

}  // namespace redline::train
