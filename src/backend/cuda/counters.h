// CUPTI's range profiler: hardware counters, kernel by kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <vector>

#include "backend/tracer.h"
#include "base/shared_library.h"

namespace redline::backend::cuda {

// An executable whose groups can be launched one at a time.
class GroupLauncher {
 public:
  virtual ~GroupLauncher() = default;
  virtual std::pair<std::size_t, std::size_t> groups_of(
      Section section) const = 0;                          // first, and one past the last
  virtual const graph::Op& lead(std::size_t i) const = 0;  // that it is named after
  virtual void open_run() = 0;                             // before the first group of a section
  virtual void launch_group(std::size_t i) = 0;            // on stream()
  virtual void close_run() = 0;  // after the last: the metrics are those of this run
  virtual cudaStream_t stream() const = 0;
};

// See Tracer::count.
std::vector<KernelCounts> count_kernels(const SharedLibrary& cupti, GroupLauncher& groups, Section section,
                                        const std::vector<std::string>& metrics);

}  // namespace redline::backend::cuda
