// Whole training steps on random images, timed: op by op, or as the one unit that training runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "bench/scaling_model.h"
#include "plan/plan.h"

namespace redline::bench {

double seconds_of(const backend::OpTime& time);

// Called after each step with what is done and how much there is; false stops.
using StepProgress = std::function<bool(std::int64_t done, std::int64_t total)>;

// By group of the plan, seconds in each of `repeat` steps; a first one warms up. On a device, ops wait behind
// other work until all are queued.
std::vector<std::vector<double>> time_ops_in_steps(const plan::Options& options,
                                                   std::shared_ptr<const plan::Plan> plan,
                                                   backend::Backend& backend, int repeat,
                                                   const StepProgress& progress);

// What a step looks like to the network: how long it takes as one unit (the median of `repeat` times a few
// steps), and when, by the times of its ops, each gradient bucket is complete. `wire` is the type in which
// gradients travel; none: the one they are kept in. Empty when stopped.
std::optional<StepShape> measure_step(const plan::Options& options, backend::Backend& backend,
                                      std::optional<graph::DType> wire, int repeat,
                                      const StepProgress& progress);

}  // namespace redline::bench
