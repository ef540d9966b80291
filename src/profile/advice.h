// What to try when time is lost. Each rule states the facts it needs, when it applies, and its text; a rule
// with unknown facts says nothing. docs/profiling.md lists the rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profile/telemetry.h"

namespace redline::profile {

// What costs time.
enum class Cause : std::uint8_t {
  input,          // the device waits for data
  launch,         // it waits for the next kernel to be launched
  communication,  // it waits for the exchange of gradients
  host,           // it waits while the host does something else
  op,             // ops take longer than the ceilings allow
  copies,         // copies not overlapped with computation
  threads,        // CPU threads wait for each other
  neighbours,     // other processes use the CPU
  power,          // the power limit lowers the clock
  heat            // heat or the power supply lowers the clock
};

// What is known about a run. Unknown facts are empty.
struct RunFacts {
  std::optional<bool> gpu;                              // a GPU trains, not the CPU
  std::optional<bool> synthetic;                        // images are generated: nothing is read or decoded
  std::optional<bool> shards;                           // images come from record files, not from a file each
  std::optional<bool> gpu_decodes;                      // the GPU decodes them
  std::optional<bool> gpu_could;                        // it does not, but could
  std::optional<std::int64_t> workers, threads, cores;  // cores: those that the process may use
  std::optional<std::int64_t> batch, ranks;
  std::optional<double> reading;   // the part of the workers' time that went into reading files
  std::optional<bool> histograms;  // were recorded in these steps
  std::optional<std::int64_t> log_every;
  std::optional<bool> deterministic, fused;
  std::optional<bool> narrower;  // the device is faster in a narrower type than the run's
};

// What is known about the ops that lose time.
struct OpFacts {
  bool memory_bound = false;
  bool activations = false;   // they read or write feature maps: their work depends on batch and --dtype
  double kernel_seconds = 0;  // mean time of one of their kernels
};

struct Facts {
  RunFacts run;
  std::optional<TelemetrySummary> telemetry;
  std::optional<OpFacts> op;  // with Cause::op
};

// The fraction of its time that a run waits for processors at most, because other processes have them: what
// they took, less what the run has no threads for. 0 if that is unknown, or if other ranks may be the others.
double lost_to_neighbours(const Facts& facts);

struct Rule {
  const char* name;
  Cause cause;
  // What to try; nothing if a fact is missing or the rule does not apply.
  std::optional<std::string> (*advise)(const Facts&);
};
const std::vector<Rule>& rules();

// The advice of all rules for a cause, joined by semicolons; empty if there is none.
std::string advice(Cause cause, const Facts& facts);

}  // namespace redline::profile
