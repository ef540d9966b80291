// The power and energy of a run's devices, and how much of it went into training.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "report/run.h"

namespace redline::report {

struct Energy {
  double power_w = 0;            // mean, summed over devices
  std::optional<double> joules;  // the whole run, evaluations included
  // Training only: stalls count, evaluations do not. Means over the steps that the samples cover.
  std::optional<double> joules_per_step, images_per_joule;
  struct Epoch {
    std::int64_t epoch = 0;  // from 0
    double joules = 0, images = 0;
    std::size_t steps = 0;
  };
  std::vector<Epoch> epochs;  // empty for a resumed run: its samples and steps have no common time axis
};

// From telemetry: the GPUs if they report power, else the CPUs. A device counts once, however many ranks
// share it. Uses a device's energy counter if it has one, else integrates its power. Nothing without power
// samples.
std::optional<Energy> energy_of(const Run& run);

}  // namespace redline::report
