// Hardware counters of kernels, and the core utilisation that follows from them: the issue rate of each kind
// of execution unit as a percentage of its peak, with kernels weighted by their cycles.
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
  std::string op;  // of the plan; empty if unknown
  std::map<std::string, double> values;
};

// The counters that a profile requests. Names differ between GPU generations: a device returns those it has.
const std::vector<std::string>& profile_metrics();
std::vector<CountedKernel> counted_kernels(const std::vector<backend::KernelCounts>& counts,
                                           const std::vector<std::string>& metrics);

// In percent of peak, over all kernels with cycles.
struct CoreUtilisation {
  std::optional<double> fma, fp16, tensor, sfu;  // instructions issued; empty if not counted
  // Cycles in which tensor cores computed; empty if not counted. From Hopper on one instruction keeps them
  // busy for many cycles, so this is the figure to look at.
  std::optional<double> tensor_active;
  double cycles = 0;                 // sum over kernels
  std::optional<double> dram_bytes;  // read and written; empty if not counted
  std::size_t kernels = 0;           // included
  std::size_t left_out = 0;          // without cycles or any pipe's counter
};
CoreUtilisation core_utilisation(const std::vector<CountedKernel>& kernels);
// "fma_pct", "fp16_pct", "tensor_pct", "sfu_pct", "tensor_active_pct", "cycles" and "dram_bytes", as far as
// counted.
nlohmann::ordered_json to_json(const CoreUtilisation& use);

// One row per counter of each kernel, as older versions of `ncu --csv --page raw` wrote them (the long form).
std::string counters_csv(const std::vector<CountedKernel>& kernels, const Subject& subject);

}  // namespace redline::profile
