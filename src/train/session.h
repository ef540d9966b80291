// A training run from configuration to exit code, and its plan without the run. What the commands call.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "train/config.h"

namespace redline::train {

// Where progress is shown.
struct Console {
  std::FILE* out = stdout;  // borrowed
  bool live = false;        // a terminal: one line, redrawn
};

// What a finished or interrupted run gives its caller.
struct Outcome {
  std::string folder;
  double top1 = 0, top5 = 0;  // of the last evaluation, the better of weights and averages; 0 without one
  bool evaluated = false;
  int signal = 0;  // that ended the run; 0: it finished
};

// Trains as configured. Progress goes to the console, the rest to the run folder, which is made once
// everything else is ready and is left consistent however the run ends. `arguments` is the command line, for
// the record. Installs signal handlers while it runs.
Outcome run_training(const Config& config, const std::vector<std::string>& arguments, const Console& console);

// Prints what a run would do: model, ops, FLOPs, fusions, memory and buckets. Writes nothing, trains nothing.
void print_plan(const Config& config, std::FILE* out);

}  // namespace redline::train
