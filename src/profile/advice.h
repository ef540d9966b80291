// What to try against a loss of time. Each rule names the facts it needs, the premise under which it is true,
// and its text; a rule whose facts are not known says nothing. docs/profiling.md lists the rules.
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
  host,           // it waits for the host, which does something else
  op,             // ops take longer than the ceilings allow
  copies,         // copies that nothing is computed beside
  threads,        // threads of a CPU wait for each other
  neighbours,     // others use the CPU
  power,          // the power limit holds the clock down
  heat            // heat or the power supply does
};

// What is known of a run. Who does not know leaves a fact empty.
struct RunFacts {
  std::optional<bool> gpu;                              // a GPU trains, not the CPU
  std::optional<bool> synthetic;                        // images are made up: nothing is read or decoded
  std::optional<bool> shards;                           // they come from record files, not one by one
  std::optional<bool> gpu_decodes;                      // the GPU decodes them
  std::optional<bool> gpu_could;                        // it does not, and it could
  std::optional<std::int64_t> workers, threads, cores;  // cores: that the process may use
  std::optional<std::int64_t> batch, ranks;
  std::optional<std::int64_t> histograms_every, log_every;
  std::optional<bool> deterministic, fused;
  std::optional<bool> narrower;  // the device is quicker in a narrower type than the run's
};

// What is known of the ops that a loss is about.
struct OpFacts {
  bool memory_bound = false;
  bool activations = false;   // they read or write feature maps: their work depends on batch and --dtype
  double kernel_seconds = 0;  // of one kernel of theirs, on average
};

struct Facts {
  RunFacts run;
  std::optional<TelemetrySummary> telemetry;
  std::optional<OpFacts> op;  // with Cause::op
};

// Whether others took CPU time that the run could have used; other ranks of its job are not known from them.
bool has_neighbours(const Facts& facts);

struct Rule {
  const char* name;
  Cause cause;
  // What to try; none when a fact is missing or the premise does not hold.
  std::optional<std::string> (*advise)(const Facts&);
};
const std::vector<Rule>& rules();

// All that the rules say about a cause, with semicolons between; empty when none speaks.
std::string advice(Cause cause, const Facts& facts);

}  // namespace redline::profile
