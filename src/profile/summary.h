// Summarises a timeline: how busy the device was, where its time went, what it waited for, how close each op
// comes to the hardware's ceilings, and the largest losses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/statistics.h"
#include "plan/traffic.h"
#include "profile/advice.h"
#include "profile/ceilings.h"
#include "profile/telemetry.h"
#include "profile/timeline.h"

namespace redline::profile {

// A plan that ran while a timeline was recorded.
struct PlanRuns {
  const plan::Plan* plan = nullptr;       // the events' ops belong to it
  std::int64_t batches = 0, updates = 0;  // how often each section ran
};

// The time of one op, or of several, per step.
struct Part {
  std::string name;  // "conv layer1.0.conv1", a layer, a kind of op, or a kernel; a fused kernel is one part:
                     // "affine_act layer1.0.bn1 with norm_stats"
  std::string kind;  // of the op; empty for layers and kernels
  double count = 0;  // events per step
  double seconds = 0;           // per step
  double flops = 0, bytes = 0;  // per step, from the shapes; 0 if unknown
  double least = 0;             // seconds that this work takes at the ceilings; 0 if unknown
  bool memory_bound = false;    // at the ceilings, bytes take longer than FLOPs
  bool activations = false;     // it reads or writes feature maps

  double of_ceiling() const { return seconds > 0 ? least / seconds : 0; }
};

// Something that costs time, for people.
struct Loss {
  std::string what;
  double seconds = 0;  // per step
  std::string advice;  // what to try; empty if nothing is known to help
};

// The cost of recording itself: alternating windows of steps with and without it, compared in pairs.
struct TracingCost {
  std::size_t pairs = 0;
  double untraced_step = 0, traced_step = 0;  // seconds, medians of the windows; 0 if there were none
  Change change;
};

struct Summary {
  std::int64_t first_step = 0, steps = 0;  // traced
  std::vector<double> iteration_seconds;
  double elapsed = 0, busy = 0;                   // seconds, over all traced steps
  double gap_seconds[4] = {};                     // by GapCause
  double communication = 0, exposed = 0;          // seconds of gradient exchange; not overlapped
  double copies_exposed = 0;                      // seconds of copies not overlapped
  std::vector<Part> ops, layers, kinds, kernels;  // slowest first
  std::vector<double> threads;  // fraction of its time that each computes; empty if not sampled
  double named = 0;             // fraction of the busy time that belongs to ops of the plan
  Ceilings ceilings;
  TelemetrySummary telemetry;
  std::vector<Loss> losses;  // the three largest
  std::string bound;         // what bounds the speed other than the work itself; empty if unknown
  TracingCost tracing;
  std::uint64_t dropped = 0;  // records
  std::int64_t untraced = 0;  // requested steps left out because of most_records

  double utilisation() const { return elapsed > 0 ? busy / elapsed : 0; }
  double step() const { return steps > 0 ? elapsed / static_cast<double>(steps) : 0; }  // seconds, the mean
};

// The timeline's ops must be those that groups are named after (plan::lead_of).
Summary summarize(const Timeline& timeline, const std::vector<PlanRuns>& plans, const Ceilings& ceilings,
                  const TelemetrySummary& telemetry, const RunFacts& run = {});
// Finds the three largest losses in what the summary has so far, and what bounds the speed.
void find_losses(Summary& summary, bool host_computes, const RunFacts& run);

std::string summary_text(const Summary& summary, std::size_t rows);
std::string milliseconds(double seconds);  // "1.25 ms"
nlohmann::ordered_json to_json(const Summary& summary);

}  // namespace redline::profile
