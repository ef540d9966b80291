// Hardware counters of kernels, and what they say about how much of a GPU's cores was in use: the share of
// their peak at which each kind of execution unit issued, every kernel weighted by its cycles.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "backend/tracer.h"
#include "profile/files.h"

namespace redline::profile {

// One kernel: its counters by name, as CUPTI and Nsight Compute name them.
struct CountedKernel {
  std::string name;
  std::string op;  // of the plan; empty when not known
  std::map<std::string, double> values;
};

// The counters that a profile asks for. Names differ between generations: a device gives those it has.
const std::vector<std::string>& profile_metrics();
std::vector<CountedKernel> counted_kernels(const std::vector<backend::KernelCounts>& counts,
                                           const std::vector<std::string>& metrics);

// In percent of the peak, over all kernels that have cycles.
struct CoreUtilisation {
  std::optional<double> fma, fp16, tensor, sfu;  // instructions issued; none when no kernel counted them
  // Cycles in which tensor cores computed; none when not counted. From Hopper on one instruction keeps them
  // busy for many cycles, so that this is the share to look at.
  std::optional<double> tensor_active;
  double cycles = 0;                 // all together
  std::optional<double> dram_bytes;  // read and written; none when not counted
  std::size_t kernels = 0;           // that count
  std::size_t left_out = 0;          // that have no cycles, or none of the pipes
};
CoreUtilisation core_utilisation(const std::vector<CountedKernel>& kernels);
// "fma_pct", "fp16_pct", "tensor_pct", "sfu_pct", "tensor_active_pct", "cycles", "dram_bytes": what was
// counted.
nlohmann::ordered_json to_json(const CoreUtilisation& use);

// A row for each counter of each kernel, as `ncu --csv --page raw` of old wrote them (its long form).
std::string counters_csv(const std::vector<CountedKernel>& kernels, const Subject& subject);

}  // namespace redline::profile
