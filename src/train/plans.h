// The plans of a run, and what the planner is asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plan/plan.h"
#include "train/config.h"

namespace redline::train {

// The plans of a run. They share the weights.
struct Plans {
  std::shared_ptr<const plan::Plan> train, eval;           // training at the largest of its image sizes
  std::vector<std::shared_ptr<const plan::Plan>> smaller;  // and at the others
};

// The height and width that a plan takes.
std::int64_t image_size_of(const plan::Plan& plan);

// What the planner is asked for. `batch` is in images; training at the largest size, evaluation takes the
// plain cross-entropy.
plan::Options train_plan_options(const Config& config, graph::DType dtype, std::int64_t classes,
                                 std::int64_t batch);
plan::Options eval_plan_options(const Config& config, graph::DType dtype, std::int64_t classes,
                                std::int64_t batch);

Plans make_plans(const Config& config, const plan::Capabilities& backend, graph::DType dtype,
                 std::int64_t classes, std::int64_t batch);

}  // namespace redline::train
