// Steps that were measured before, for predictions on a machine without such a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/scaling_model.h"

namespace redline::bench {

struct KnownStep {
  std::string name;  // "h200:64", the GPU and the images of a step
  std::int64_t batch = 0;
  StepShape shape;
  std::string source;
};

const std::vector<KnownStep>& known_steps();
std::optional<KnownStep> find_known_step(const std::string& name);

}  // namespace redline::bench
