// What a run drew: power and energy of its devices, and what of it training took.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "report/run.h"

namespace redline::report {

struct Energy {
  double power_w = 0;            // the mean, of all devices together
  std::optional<double> joules;  // of the run, evaluations included
  // Of training alone: evaluations left out, stalls counted. Means over the steps that the samples cover.
  std::optional<double> joules_per_step, images_per_joule;
  struct Epoch {
    std::int64_t epoch = 0;  // from 0
    double joules = 0, images = 0;
    std::size_t steps = 0;
  };
  std::vector<Epoch> epochs;  // none for a run that was resumed: its samples and steps have no common axis
};

// From telemetry: of the GPUs where they tell their power, else of the CPUs; each device counts once, however
// many ranks share it. The counter of energy where a device has one, else its power over time. None without
// samples of power.
std::optional<Energy> energy_of(const Run& run);

}  // namespace redline::report
