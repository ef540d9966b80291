// The plans of a run, and the options given to the planner.
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

// The image height and width of a plan.
std::int64_t image_size_of(const plan::Plan& plan);

// The options for the planner. `batch` is in images; training uses the largest size, evaluation the plain
// cross-entropy.
plan::Options train_plan_options(const Config& config, graph::DType dtype, std::int64_t classes,
                                 std::int64_t batch);
plan::Options eval_plan_options(const Config& config, graph::DType dtype, std::int64_t classes,
                                std::int64_t batch);

Plans make_plans(const Config& config, const plan::Capabilities& backend, graph::DType dtype,
                 std::int64_t classes, std::int64_t batch);

}  // namespace redline::train
