// How long each op of a training step takes: each distinct op of a plan alone, or all within the step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "plan/plan.h"

namespace redline::bench {

struct OpBenchOptions {
  plan::Options plan;    // of the step whose ops are timed
  std::string filter;    // only ops whose kind or layer name contains it; empty: all
  int repeat = 20;       // timed runs of each op, after a warm-up
  bool in_step = false;  // time ops within whole steps, with caches as in training
};

// One distinct op by kind, shapes, types and attributes. Within steps, ops that the device fuses are one, and
// so are all of an optimizer's.
struct OpTiming {
  std::string kind;         // "conv"
  std::string description;  // describe() of op_cases.h, and what is fused with it: "… with norm_stats"
  std::string layer;        // the first layer that has it
  int count = 0;            // how often it is in the step
  double seconds = 0;       // median of one execution
  double fastest = 0;       // seconds
  double flops = 0;         // of one execution
  double bytes = 0;         // the least it must move, as counted by plan::work_of

  // Measured by op_limits.h; 0 if not measured.
  double least_seconds = 0;   // at the device's ceilings
  bool memory_bound = false;  // bytes take longer there than FLOPs
  double copy_seconds = 0;    // of a plain copy of as many bytes

  double step_seconds() const { return seconds * count; }
};

// Called with how many ops or steps are done and how many there are, also while one is timed; false stops.
using Progress = std::function<bool(std::int64_t done, std::int64_t total)>;

// Slowest in the step first. Throws UsageError if the filter matches nothing; returns what was measured so
// far when stopped, and lets backend::Abandoned through.
std::vector<OpTiming> bench_ops(const OpBenchOptions& options, backend::Backend& backend,
                                const Progress& progress);

}  // namespace redline::bench
