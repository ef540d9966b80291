// Chooses how each group of a plan is run, and makes the steps.
#pragma once

#include <vector>

#include "backend/cuda/step.h"
#include "backend/cuda/tuner.h"

namespace redline::backend::cuda {

struct ChoosingRules {
  bool deterministic = false;  // the first candidate, cuDNN's being those that give the same bits every time
  bool tf32 = false;
  bool tune_all = false;            // however long it takes; else within a few seconds
  std::function<bool()> stop = {};  // asked from several threads; true: what is left is not timed
  std::function<void(std::int64_t answered, std::int64_t all)> progress = {};
};

// By group. Where candidates are timed, `activations` and `gradients`, the memory that the plan's tensors lie
// in, are filled with random numbers first and cleared after it; nothing that outlives a step is touched.
std::vector<Step> make_steps(const plan::Plan& plan, const Places& places, const DeviceMemory& activations,
                             const DeviceMemory& gradients, Shared& shared, Choices& choices,
                             const ChoosingRules& rules);

}  // namespace redline::backend::cuda
