// How long each op of a training step takes: every distinct op of a plan on its own, or all of them within
// the step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "plan/plan.h"

namespace redline::bench {

struct OpBenchOptions {
  plan::Options plan;    // the step whose ops are timed
  std::string filter;    // only ops whose kind or layer name contains it; empty: all
  int repeat = 20;       // timed runs of each op, after a warm-up
  bool in_step = false;  // time ops within whole steps: caches are as they are in training
};

// One distinct op: the same kind, shapes, types and attributes; within steps, also ops that the device does
// in one go, and all of an optimizer's.
struct OpTiming {
  std::string kind;         // "conv"
  std::string description;  // describe() of op_cases.h, and what is done with it: "… with norm_stats"
  std::string layer;        // the first layer that has it
  int count = 0;            // how often it is in the step
  double seconds = 0;       // median of one execution
  double fastest = 0;       // seconds
  double flops = 0;         // of one execution
  double bytes = 0;         // the least that it has to move, as plan::work_of counts

  // What op_limits.h measures; 0 when it was not.
  double least_seconds = 0;   // at the device's ceilings
  bool memory_bound = false;  // bytes take longer there than FLOPs
  double copy_seconds = 0;    // of a plain copy that moves as many bytes

  double step_seconds() const { return seconds * count; }
};

// Called after each op, or each step, with what is done and how much there is; false stops.
using Progress = std::function<bool(std::int64_t done, std::int64_t total)>;

// Slowest in the step first. Throws UsageError when the filter leaves nothing; gives what was measured so far
// when stopped.
std::vector<OpTiming> bench_ops(const OpBenchOptions& options, backend::Backend& backend,
                                const Progress& progress);

}  // namespace redline::bench
