// Times whole training steps on random images: op by op, or as the single unit that training runs.
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

// Called after each step with how many are done and how many there are; false stops.
using StepProgress = std::function<bool(std::int64_t done, std::int64_t total)>;

// For each group of the plan, its seconds in each of `repeat` steps, after a warm-up step. On a device, ops
// wait behind other work until all are queued.
std::vector<std::vector<double>> time_ops_in_steps(const plan::Options& options,
                                                   std::shared_ptr<const plan::Plan> plan,
                                                   backend::Backend& backend, int repeat,
                                                   const StepProgress& progress);

// The shape of a step for the network model: how long it takes as one unit (the median of `repeat` batches of
// a few steps), and when each gradient bucket is complete, by the times of its ops. `wire` is the type in
// which gradients are sent; empty: the type they are stored in. Returns nothing when stopped, and lets
// backend::Abandoned through.
std::optional<StepShape> measure_step(const plan::Options& options, backend::Backend& backend,
                                      std::optional<graph::DType> wire, int repeat,
                                      const StepProgress& progress);

}  // namespace redline::bench
