// A training run from configuration to exit code, and a dry run. Called by the commands.
#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "profile/session.h"
#include "train/config.h"

namespace redline::train {

// Where progress is shown.
struct Console {
  std::FILE* out = stdout;  // borrowed
  bool live = false;        // a terminal: one line, redrawn
  // Called with the folder of a run once its records are complete, however it ended, and whether it was
  // interrupted, so that someone may be waiting; must not throw. May be empty.
  std::function<void(const std::string& folder, bool interrupted)> ended = {};
};

// Whether to resume a run.
struct Resume {
  bool wanted = false;
  std::string run;  // its folder, which must exist; empty: the one named by the configuration, or a new one
};

// The result of a finished or interrupted run.
struct Outcome {
  std::string folder;
  double top1 = 0, top5 = 0;  // of the last evaluation, the better of weights and averages; 0 without one
  bool evaluated = false;
  int signal = 0;             // that ended the run; 0: it finished
  bool checkpointed = false;  // there is a checkpoint to resume from
};

// 0 for a run that finished; 75 (try again) for one that a signal ended and that can be resumed, except that
// SIGINT is always 130; 128 + signal for one that cannot.
int exit_code(const Outcome& outcome);

// Trains as configured. Progress goes to the console, the rest to the run folder, which is created once
// everything else is ready and is left consistent however the run ends: with a checkpoint of its last step,
// unless its numbers went wrong. `arguments` is the command line, for the record. Installs signal handlers
// while it runs. Throws UsageError if the run to resume is of another model.
// With `profiling`, steps are profiled, nothing is evaluated, and the run folder gets the profile's files.
// With several ranks (`world`), only rank 0 writes and shows anything; every rank gets the same outcome,
// except for the folder. A lost peer ends it with comm::PeerError.
Outcome run_training(const Config& config, const std::vector<std::string>& arguments, const Console& console,
                     const Resume& resume = {}, const std::optional<profile::SessionOptions>& profiling = {},
                     const comm::World& world = {});

// Prints what a run would do: model, ops, FLOPs, fusions, memory and buckets. Writes nothing, trains nothing.
void print_plan(const Config& config, std::FILE* out);

}  // namespace redline::train
